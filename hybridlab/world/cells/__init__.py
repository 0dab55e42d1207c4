"""`%%ranks`: cells of a notebook that run on every rank (`cells`), the variables that each rank keeps between them
(`namespace`), and one bar for the progress of all ranks (`progress`).
"""
