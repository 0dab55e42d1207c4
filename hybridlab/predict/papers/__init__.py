"""Papers: printed results as tables (`published`), and SC'21's as shapes and plans with the fit on them (`sc21`)."""
