#!/bin/sh
# `make demo`: train a net on handwritten digits, then search for better hyperparameters.
# demo.sh BIN HOME: everything is kept in HOME; a second run shows what the first search found.
set -eu
cd "$(dirname "$0")/digits"
export PATH="$1:$PATH" DET_HOME="$2" DET_STORAGE="$2/checkpoints"
mkdir -p "$DET_HOME"

python train.py

echo
echo "Now twelve trainings with other hyperparameters, as many at a time as there are slots;"
echo "bad ones are stopped early."
if [ ! -s "$DET_HOME/search" ]; then
  det experiment create adaptive.yaml . | tee "$DET_HOME/created"
  sed -n 's/^Created experiment //p' "$DET_HOME/created" >"$DET_HOME/search"
fi
search=$(cat "$DET_HOME/search")
det experiment wait "$search"
echo
det experiment compare "$search"
det supervisor stop >/dev/null 2>&1 || true
echo
echo "Look at both in a browser: make dashboard"
