"""Every notebook of the course in a real JupyterLab: run from top to bottom, and each control of each widget moved.

HYBRIDLAB_SHOTS=folder keeps what was seen, one screenful after the other.
"""
