#!/usr/bin/env bash
# The best recipe for Multi30k by one command: three small models learn from the
# references and translate the training data together, and a larger one learns from both
# (docs/multi30k.md, "Distilled").
set -euo pipefail

usage="usage: $0 OUT --data DATA [options of keras-luong train]

    $0 runs/distilled --data m30k --source en --target de --bleu_tokenize none

OUT gets the run directories teacher1, teacher2, teacher3 and student, and corpus, which
the student learns from. The four trainings have all the options, but --seed is the student's
(the teachers have the seeds 1, 2 and 3). The same command again goes on where a training
stopped; the corpus is translated in one go, and then stays. The command is .venv's, or
KERAS_LUONG."

here=$(dirname "$0")
command=${KERAS_LUONG:-$here/../.venv/bin/keras-luong}

refuse() {
    printf '%s\n\n%s\n' "$1" "$usage" >&2
    exit 2
}

data=
for argument in "$@"; do
    case $argument in
    -h | --help) echo "$usage" && exit ;;
    --data | --data=*) data=given ;;
    --run_dir* | --preset* | --limit_examples*)
        refuse "Not for these trainings: $argument"
        ;;
    esac
done
[[ ${1:--} != -* ]] || refuse "OUT must come first. Received: ${1:-nothing}"
[[ $data ]] || refuse "There must be --data."
command -v "$command" > /dev/null ||
    refuse "There is no $command: run make, or set KERAS_LUONG."
out=${1%/}
shift

for seed in 1 2 3; do
    "$command" train --preset multi30k-small "$@" \
        --run_dir "$out/teacher$seed" --seed $seed
done
if [[ ! -e $out/corpus ]]; then
    "$command" distill "$out"/teacher{1,2,3} --out "$out/corpus"
fi
"$command" train --preset multi30k --constant_epochs 8 --epochs 12 "$@" \
    --run_dir "$out/student" --data "$out/corpus"
