"""Papers: printed results as tables (`published`), SC'21's as shapes and plans with the fit on them (`sc21`), runs with
long contexts and experts, to which nothing is fitted (`long_and_sparse`), and GoogLeNet's branches (`googlenet`)."""
