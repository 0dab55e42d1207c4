"""`%%ranks`: the cells of a notebook that run on every rank (`cells`), each rank's variables between them
(`namespace`), and the one bar that shows how far all ranks are (`progress`).
"""
