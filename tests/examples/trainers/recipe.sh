#!/bin/sh
# Recipes of trainers: a run that its recipe.toml repeats bit for bit, every key changes what --explain says or is refused, wrong
# recipes end in one line and exit code 2, flags of version 0.1 name their keys, and `new` writes a program. Prints `failed: NAME` for
# each failed test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher

tools=$build/examples
own=$tools/own_trainer
. "$root/tests/suite.sh"

needs 'the trainers are' "$own" "$tools/cosmoflow" "$tools/unet3d" "$tools/classify" "$tools/contrastive" "$tools/universe"
cd "$work" || die "no folder $work"
export OMP_NUM_THREADS=1

run "$own" make noise.h5
judge 'own_trainer makes its data' test -s noise.h5
cat >base.toml <<'END'
seed = 3
[schedule]
shape = "constant"
epochs = 9
[checkpoint]
best = true
END
cat >recipe.toml <<'END'
include = "base.toml"
program = "own_trainer"
[data]
path = "noise.h5"
flips = true
[network]
width = 3
[schedule]
epochs = 2
[precision]
compute = "float64"
deterministic = true
END

# ---- a run and its repetition
ranks 2 "$own" train recipe.toml --quiet --grid depth=2 --set optimizer.learning_rate=3e-3 --out first
judge 'a recipe, a base, --set and a flag' says 'written to first'
kept() {
  grep -q '^learning_rate = 0.003$' first/recipe.toml && grep -q '^epochs = 2$' first/recipe.toml && grep -q '^seed = 3$' first/recipe.toml &&
    grep -q '^extents = "depth=2"$' first/recipe.toml && grep -q '^training_data = "[^"]' first/recipe.toml && [ -s first/best.h5 ]
}
judge 'recipe.toml has the keys of all of them, and where it comes from' kept
ranks 2 "$own" train first/recipe.toml --quiet --out again
repeats() { succeeds && [ ! -s "$work/err" ] && cut -d, -f2-4 first/metrics.csv >a.csv && cut -d, -f2-4 again/metrics.csv | cmp - a.csv; }
judge 'the recipe of a run repeats its losses bit for bit' repeats
same_recipe() { sed '/^commit = /d' first/recipe.toml >a.toml && sed '/^commit = /d' again/recipe.toml | cmp - a.toml; }
judge 'and leaves the same recipe' same_recipe
ranks 2 "$own" train first/recipe.toml --set data.validation_group=train --out others --overwrite
judge 'other data than the recipe had are a warning' warns "the recipe's kept_data was"

# ---- wrong recipes
# wrong NAME MESSAGE: a recipe on standard input is refused in one line with the file's name and exit code 2, and nothing is written.
wrong() {
  cat >wrong.toml
  run "$own" train wrong.toml --out wrong
  judge "$1" refuses_wrong "$2"
}
refuses_wrong() { refuses_arguments "$1" && no_file wrong; }
wrong 'an unknown key' "wrong.toml:2: there is no key 'optimizer.learnig_rate'; did you mean 'optimizer.learning_rate'?" <<'END'
[optimizer]
learnig_rate = 1
END
wrong 'a key without its section' "wrong.toml:1: there is no key 'epochs'; did you mean 'schedule.epochs'?" <<'END'
epochs = 3
END
wrong 'a text for a number' 'wrong.toml:2: schedule.epochs is a whole number, not a text' <<'END'
[schedule]
epochs = "3"
END
wrong 'a list for a number' 'wrong.toml:2: schedule.batch is a whole number, not a list' <<'END'
[schedule]
batch = [8]
END
wrong 'out of range' 'wrong.toml:2: optimizer.learning_rate: a finite number above 0 is needed, not -1' <<'END'
[optimizer]
learning_rate = -1
END
wrong 'infinite' 'wrong.toml:2: optimizer.learning_rate: a finite number above 0 is needed, not inf' <<'END'
[optimizer]
learning_rate = inf
END
wrong 'no choice' "wrong.toml:2: schedule.shape: 'sine' is not one of constant, cosine, step, linear, polynomial" <<'END'
[schedule]
shape = "sine"
END
wrong 'two grids' 'wrong.toml:3: ' <<'END'
[grid]
extents = "depth=1"
extents = "sample=1"
END
wrong 'a grid of an axis that does not exist' 'depht' <<'END'
data.path = "noise.h5"
[grid]
extents = "depht=1"
END
wrong 'a recipe of another program' "wrong.toml:1: the recipe is for the program 'unet3d'; this is 'own_trainer'" <<'END'
program = "unet3d"
END
wrong 'a recipe of another command' "wrong.toml:1: the recipe is for the command 'predict'; this is 'train'" <<'END'
command = "predict"
END
wrong 'a key of another trainer' "there is no key 'loss.temperature'" <<'END'
[loss]
temperature = 0.5
END
wrong 'no TOML' 'wrong.toml:1: ' <<'END'
[schedule
END
wrong 'a file that includes itself' 'wrong.toml includes itself' <<'END'
include = "wrong.toml"
END
wrong 'an absent base' 'there is no recipe absent.toml' <<'END'
include = "absent.toml"
END
wrong 'keys that exclude each other' 'checkpoint.local_folder and checkpoint.local_steps: both or none' <<'END'
data.path = "noise.h5"
checkpoint.local_steps = 3
END
wrong 'a key without effect here' 'schedule.decay_factor is of schedule.shape step, not of cosine' <<'END'
data.path = "noise.h5"
schedule.decay_factor = 0.5
END
run "$own" train absent.toml --out wrong
judge 'no such file' refuses_wrong 'there is no recipe absent.toml'
run "$own" train recipe.toml --epochs 3 --set schedule.epochs=4 --out wrong
judge 'a key by a flag and by --set' refuses_wrong 'schedule.epochs is given by --set and by --epochs'
run "$own" train recipe.toml --learning-rat=1 --out wrong
judge 'a flag that does not exist, with the nearest one' refuses_wrong "there is no flag '--learning-rat'; did you mean '--learning-rate'?"
run "$own" train recipe.toml --colour --out wrong
judge 'a flag that is like none' refuses_wrong "there is no flag '--colour'; --help lists the flags"
run "$own" train recipe.toml --set schedule.larger_is_better --set checkpoint.best --out wrong
judge 'the larger value of no metric' refuses_wrong 'schedule.larger_is_better is of schedule.metric'
run "$own" train recipe.toml --set schedule.metric=train_loss --set checkpoint.keep=2 --set checkpoint.wait --set checkpoint.mtbf=9 --set checkpoint.best=false --explain
judge 'keys that nothing reads' test "$(grep -c '^warning: \(schedule.metric\|checkpoint.keep\|checkpoint.wait\|checkpoint.mtbf\) has no effect: ' "$work/err")" -eq 4
run "$own" train recipe.toml --set schedule.metric=train_loss --set checkpoint.best --set checkpoint.keep=2 --set checkpoint.wait --set checkpoint.mtbf=9 \
  --set checkpoint.epochs=1 --explain
judge 'keys that something reads' silent
# What no restart can mend has exit code 2.
echo junk >junk.h5
for words in '--weights absent.h5' '--weights junk.h5' '--resume absent.h5' '--set optimizer.freeze=nothing' '--out junk.h5'; do
  # shellcheck disable=SC2086
  case $words in --out*) ;; *) words="--out wrong $words" ;; esac
  run "$own" train recipe.toml $words
  judge "bad input of train: $words" refuses_arguments '^own_trainer: \['
done
for words in '--weights absent.h5 --data noise.h5' '--weights junk.h5 --data noise.h5'; do
  # shellcheck disable=SC2086
  run "$own" evaluate --out wrong $words
  judge "bad input of evaluate: $words" refuses_arguments '^own_trainer: \['
done
run "$own" train recipe.toml --warm-up 1 --out wrong
judge 'a flag of version 0.1' refuses_wrong 'the flag is replaced by the key schedule.warm_up: --set schedule.warm_up=VALUE'
ranks 2 "$own" train wrong.toml --out wrong
judge 'once on 2 ranks' refuses_wrong 'schedule.decay_factor is of schedule.shape step'

# ---- every key is used
run "$tools/universe" generate --universes 6 --size 16 --cell 8 --seed 1 --out universes
python3 "$root/tests/examples/trainers/bars.py" .
mkdir scans
python3 - <<'END'
import random, struct
random.seed(3)
for n in range(5):
    values = [random.random() for _ in range(12**3)]
    for kind, code, cells in (('x', 'f', values), ('y', 'i', [int(v > 0.7) for v in values])):
        header = f"{{'descr': '<{code}4', 'fortran_order': False, 'shape': (12, 12, 12), }}"
        header += ' ' * (-(len(header) + 11) % 64) + '\n'
        with open(f'scans/v{n}_{kind}.npy', 'wb') as f:
            f.write(b'\x93NUMPY\x01\x00' + struct.pack('<H', len(header)) + header.encode() + struct.pack(f'<{12**3}{code}', *cells))
END
# unused PROGRAM SECTIONS ARGUMENT...: keys of these sections whose change --explain does not show.
every() {
  what=$1 sections=$2
  shift 2
  run python3 "$root/tests/examples/trainers/every_key.py" "$tools/$what" "$sections" "$@"
  judge "every key of $what is read or refused" says '^[1-9][0-9]* keys, 0 unused$'
}
every own_trainer all --data noise.h5
every cosmoflow data,network,loss --data universes --batch 2
every unet3d data,labels,network,loss --data scans --window 8 --filters 2,2,2
every contrastive data,network,loss --data bars-images-idx3-ubyte --batch 8

# ---- few flags
few_flags() { succeeds && [ "$(grep -cE '^ +(-h,)?--[a-z]' "$work/out")" -le 25 ]; }
for tool in cosmoflow unet3d classify contrastive; do
  run "$tools/$tool" train --help
  judge "$tool train has at most 25 flags" few_flags
done

# ---- a program of one's own
run "$own" new mine
judge '`new` writes a program' says 'mine/ has mine.cpp'
judge 'with a recipe that is right for it' grep -q 'return trainer::run' mine/mine.cpp
run "$own" new mine
judge 'a folder that exists' refuses_arguments 'mine exists'
run "$own" new Mine
judge 'a name that is none' refuses_arguments 'lower-case'

summary
