"""Published results: tables as printed (`published`); SC'21's rows as shapes and plans, with the fit on them (`sc21`);
runs with long contexts and experts, which are not fitted (`long_and_sparse`); and GoogLeNet's branches
(`googlenet`)."""
