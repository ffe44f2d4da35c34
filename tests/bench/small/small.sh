#!/bin/sh
# Calls with tiny tensors, next to PyTorch's from Python and from C++, in turns on one core: microseconds, and the ratio to the
# faster of PyTorch's. Asked: at most 0.5.
#
#   sh tests/bench/small/small.sh PYTHON [ROUNDS]     PYTHON has torch; default: 3 rounds of medians
set -u
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
build=${MPIGRAD_BUILD:-$root/build}
case ${1:-} in '' | -h | --help) sed -n '2,6s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
python=$1 rounds=${2:-3}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))') || exit 1
c++ -std=c++20 -O2 -o "$work/torch_calls" "$root/tests/bench/small/small_torch.cpp" -I"$root" -I"$torch/include" -I"$torch/include/torch/csrc/api/include" \
  -L"$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch_cpu -ltorch -lc10 || exit 1
export OMP_NUM_THREADS=1
i=0
while [ "$i" -lt "$rounds" ]; do
  "$build/tests/small_calls" >>"$work/ours" && "$work/torch_calls" >>"$work/cpp" && "$python" "$root/tests/bench/small/small_torch.py" >>"$work/python" || exit 1
  i=$((i + 1))
done
python3 - "$work" <<'END'
import statistics, sys
def medians(name):
    times = {}
    for line in open(f'{sys.argv[1]}/{name}'):
        case, seconds = line.split()
        times.setdefault(case, []).append(float(seconds))
    return {case: statistics.median(seconds) for case, seconds in times.items()}
ours, cpp, python = medians('ours'), medians('cpp'), medians('python')
print('| call | here, us | PyTorch C++ | PyTorch Python | ratio to the faster |\n|---|--:|--:|--:|--:|')
for case, seconds in ours.items():
    print(f'| {case.replace("_", ", ")} | {1e6 * seconds:.2f} | {1e6 * cpp[case]:.2f} | {1e6 * python[case]:.2f} | {seconds / min(cpp[case], python[case]):.2f} |')
END
