#!/usr/bin/env bash
# The best recipe for Multi30k by one command: three small models learn from the
# references and translate the training data together, and a larger one learns from both
# (docs/multi30k.md, "Distilled"). The same command again goes on where it stopped.
#
#     examples/train_distilled.sh OUT --data multi30k_tok --source en --target de \
#         --bleu_tokenize none
#
# OUT gets the run directories teacher1, teacher2, teacher3 and student, and the corpus
# that the student learns from. The flags are those of train_wmt.py, and all four have
# them. PYTHON is the interpreter, by default that of .venv.
set -euo pipefail
here=$(dirname "$0")
python=${PYTHON:-$here/../.venv/bin/python}

if (($# < 2)) || [[ $1 == -* ]]; then
    echo "usage: $0 OUT --data DATA --source en --target de [flags of train_wmt.py]" >&2
    exit 2
fi
out=$1
shift

if [ ! -e "$out/corpus" ]; then
    for seed in 1 2 3; do
        "$python" "$here/train_wmt.py" --preset multi30k-small "$@" \
            --run_dir "$out/teacher$seed" --seed $seed
    done
    "$python" "$here/distill_corpus.py" "$out"/teacher[123] --out "$out/corpus"
fi
"$python" "$here/train_wmt.py" --preset multi30k --constant_epochs 8 --epochs 12 "$@" \
    --run_dir "$out/student" --data "$out/corpus"
