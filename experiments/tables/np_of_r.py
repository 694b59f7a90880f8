"""R's np, in an R of its own, where there is one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy
import pandas
from numpy.typing import NDArray

Array = NDArray[numpy.float64]

# Reads train.csv (with y) and queries.csv of the folder it is given, and writes predictions.txt: the seconds of fitting
# and predicting, then a prediction per line. Levels of categories are those of train.csv.
PROGRAM = """
suppressPackageStartupMessages(library(np))
options(np.messages = FALSE)
setwd(commandArgs(trailingOnly = TRUE)[1])
train <- read.csv("train.csv", stringsAsFactors = TRUE)
queries <- read.csv("queries.csv", stringsAsFactors = TRUE)
features <- names(queries)
for (name in features) {
  if (is.factor(train[[name]])) queries[[name]] <- factor(queries[[name]], levels = levels(train[[name]]))
}
X <- train[features]
seconds <- system.time({
  bandwidths <- npregbw(xdat = X, ydat = train$y, regtype = "ll", bwmethod = "cv.ls")
  fitted <- npreg(bws = bandwidths, txdat = X, tydat = train$y, exdat = queries)
})[["elapsed"]]
writeLines(format(c(seconds, fitted$mean), digits = 15, scientific = TRUE, trim = TRUE), "predictions.txt")
"""


@cache
def is_here() -> bool:
    """Whether there is an R with np."""
    if shutil.which("Rscript") is None:
        return False
    question = 'quit(status = if (requireNamespace("np", quietly = TRUE)) 0 else 1)'
    return subprocess.run(["Rscript", "-e", question], capture_output=True, check=False).returncode == 0


def predict(X: pandas.DataFrame, y: Array, queries: pandas.DataFrame) -> tuple[Array, float]:
    """A local line with cross-validated bandwidths, and the seconds that R needed without starting."""
    names = [f"x{number}" for number in range(X.shape[1])]
    with tempfile.TemporaryDirectory() as folder:
        X.set_axis(names, axis=1).assign(y=y).to_csv(Path(folder, "train.csv"), index=False)
        queries.set_axis(names, axis=1).to_csv(Path(folder, "queries.csv"), index=False)
        program = Path(folder, "program.R")
        program.write_text(PROGRAM, encoding="utf-8")
        subprocess.run(["Rscript", str(program), folder], capture_output=True, check=True)
        seconds, *predictions = map(float, Path(folder, "predictions.txt").read_text().split())
    return numpy.array(predictions), seconds
