#!/bin/sh
# `make demo`: train a net on handwritten digits, then search for better hyperparameters.
# demo.sh BIN HOME: everything is kept in HOME; a second run shows what the first search found.
set -eu
cd "$(dirname "$0")/digits"
export PATH="$1:$PATH" DET_HOME="$2" DET_STORAGE="$2/checkpoints" DET_SLOTS="${DET_SLOTS:-2}"
mkdir -p "$DET_HOME"

# Nothing stays behind: a search that was interrupted ends, and the next demo begins a new one.
leave() {
  status=$?
  set +e
  trap - EXIT
  if [ "$status" != 0 ] && [ -s "$DET_HOME/search" ]; then
    det experiment kill "$(cat "$DET_HOME/search")" >/dev/null 2>&1
    det experiment wait "$(cat "$DET_HOME/search")" >/dev/null 2>&1
    rm "$DET_HOME/search"
  fi
  det supervisor stop >/dev/null 2>&1
  exit "$status"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

python train.py

echo
echo "Now twelve trainings with other hyperparameters, on $DET_SLOTS slots; bad ones are stopped early."
if [ ! -s "$DET_HOME/search" ]; then
  det experiment create adaptive.yaml . --json >"$DET_HOME/created"
  sed -n 's/.*"experiment_id": \([0-9]*\).*/\1/p' "$DET_HOME/created" >"$DET_HOME/search"
fi
search=$(cat "$DET_HOME/search")
det experiment wait "$search"
echo
det experiment compare "$search"
echo
echo "Look at both in a browser: make dashboard"
