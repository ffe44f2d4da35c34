#!/bin/sh
# The site: its parts that need neither pandoc nor a browser in the quick run, all of it with MPIGRAD_TEST_ALL or as `sh tests/run.sh site`:
# made by Meson's target, looked at by Chromium from a file, its calculator compared with the program. Prints `failed: NAME` for each failed
# test and ends with `N passed, M failed, K skipped`. tests/run.sh calls it.
set -u

root=$(CDPATH='' cd -- "$(dirname -- "$0")/../../.." && pwd)
. "$root/examples/packaging/packages.sh"
choose_launcher
. "$root/tests/suite.sh"

needs 'the tools are' "$build/examples/adjoint"

# ---- pictures by the tools
well_formed() { succeeds && python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$1"; }
run "$build/examples/adjoint" allgather --ranks 3 --x '1;2;3' --ybar '1,2,3;10,20,30;100,200,300' --picture "$work/a.svg"
judge 'the calculator draws matrix, transpose and messages' well_formed "$work/a.svg"
# 9 + 9 numbers that are not 0; three messages to each of three ranks, both ways.
arrows() { [ "$(grep -c 'marker-end' "$work/a.svg")" -eq "$1" ]; }
judge 'as many messages as blocks that are not zero' arrows 18
run "$build/examples/adjoint" allreduce --ranks 2 --x '1;2' --ybar '1;1' --reduce max --json --picture "$work/b.svg"
judge 'what is not linear has a picture that says so' grep -q 'not linear' "$work/b.svg"
run "$build/examples/halo" --extent 12 --ranks 4 --kernel 5 --stride 2 --padding 2 --picture "$work/c.svg"
judge 'the halo planner draws who has what' well_formed "$work/c.svg"
run "$build/examples/halo" --extent 12 --ranks 4 --kernel 5 --picture "$work/no/such/folder.svg"
judge 'a picture that cannot be written' refuses 'folder.svg cannot be written'

# ---- operations.toml knows every operation of the calculator, and its examples run
cat >"$work/operations.py" <<'END_OF_PYTHON'
import shlex, subprocess, sys, tomllib
root, build = sys.argv[1:]
table = tomllib.load(open(f"{root}/examples/site/operations.toml", "rb"))
known = subprocess.run([f"{build}/examples/adjoint", "--help"], capture_output=True, text=True).stdout.split("Operations:")[1].split()
described = [each["name"] for each in table["operation"]]
missing = set(known) ^ set(described)
for each in table["operation"]:
    done = subprocess.run([f"{build}/examples/adjoint", *shlex.split(each["example"])], capture_output=True, text=True)
    if done.returncode: missing.add(f"{each['name']}: {done.stderr}")
for kind in ("operation", "other", "local"):
    for each in table[kind]:
        missing |= {f"{each['name']} has no {key}" for key in ("definition", "cost", "cpp") if not each.get(key)}
sys.exit("\n".join(sorted(missing)) or 0)
END_OF_PYTHON
run python3 "$work/operations.py" "$root" "$build"
judge "every operation has a page: $(head -n 3 "$work/err" | tr '\n' ' ')" succeeds
ten_questions() { [ "$(python3 -c 'import json, sys; print(sum(0 <= each["right"] < len(each["answers"]) and bool(each["why"]) for each in json.load(open(sys.argv[1]))))' "$root/examples/site/quiz.json")" = 10 ]; }
status=0
judge 'the quiz has ten questions with an answer' ten_questions

# ---- the whole site
if [ -z "${MPIGRAD_TEST_ALL:-}${MPIGRAD_TEST_SITE:-}" ]; then
  skip 'the site as a whole: sh tests/run.sh site'
  summary
  exit
fi
chromium=
for name in chromium chromium-browser google-chrome; do if have $name; then chromium=$name; fi; done
for program in pandoc doxygen em++ node; do
  if ! have $program; then
    skip "the site: there is no $program"
    summary
    exit
  fi
done
compile python3 "$root/examples/site/make.py" "$root" "$build"
judge 'the site is made, and Doxygen has nothing to say' succeeds
site=$build/site

# Links lead to pages that are there, and nothing is loaded from elsewhere.
cat >"$work/links.py" <<'END_OF_PYTHON'
import html.parser, pathlib, sys
site = pathlib.Path(sys.argv[1])
wrong = set()
class Reader(html.parser.HTMLParser):
    def handle_starttag(self, tag, attributes):
        for key, value in attributes:
            loads = (tag, key) in {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src")}
            if value and loads and "://" in value: wrong.add(f"{page}: loads {value}")
            if key in ("href", "src") and value and "://" not in value and not value.startswith(("#", "mailto:", "data:", "javascript:")):
                if not (page.parent / value.split("#")[0]).exists(): wrong.add(f"{page.relative_to(site)}: {value}")
for page in site.rglob("*.html"):
    if "reference" not in page.parts: Reader().feed(page.read_text())
print("\n".join(sorted(wrong)[:20]))
sys.exit(bool(wrong))
END_OF_PYTHON
run python3 "$work/links.py" "$site"
judge "links lead somewhere, nothing comes from elsewhere: $(head -n 3 "$work/out" | tr '\n' ' ')" succeeds

# The front page has the program, an adjoint as a picture, and four doors; the table of contents leads to every page of the project.
greets() {
  grep -q 'activation_layout' "$site/index.html" && grep -q '<svg' "$site/index.html" && for door in thirty_lines lessons/index contents jobs; do
    grep -q "href=\"$door.html\"" "$site/index.html" || return 1
  done
}
judge 'the front page greets with the library' greets

# 200 problems, drawn; the program's answers are what the page has to find, digit for digit.
run python3 "$root/tests/examples/site/site_problems.py" "$build" "$work/problems.js"
judge 'problems are drawn' succeeds
cat >"$work/node.js" <<'END_OF_SCRIPT'
const fs = require('fs'), [, , engine, drawn] = process.argv;
eval(fs.readFileSync(drawn, 'utf8').replace('const problems', 'globalThis.problems').replace('const compare', 'globalThis.compare'));
require(engine)().then(e => { const wrong = compare(e); console.log(wrong.length + ' of ' + globalThis.problems.length + ' differ'); console.log(wrong.slice(0, 3).join('\n')); });
END_OF_SCRIPT
run node "$work/node.js" "$site/engine.js" "$work/problems.js"
judge 'the compiled calculator finds the digits of the program, 200 problems (node)' says '^0 of 200 differ'
if [ -z "$chromium" ]; then
  skip 'the site in a browser: there is no Chromium'
  summary
  exit
fi
looks() {
  mkdir -p "$work/profile"
  run "$chromium" --headless --no-sandbox --disable-gpu --user-data-dir="$work/profile" --virtual-time-budget="${budget:-20000}" "$@"
}
# looks_for PATTERN ARGUMENT...: the page as it is when the engine has been compiled, for which virtual time does not wait; so it is given more.
looks_for() {
  pattern=$1
  shift
  for budget in 20000 200000 2000000; do
    looks "$@"
    if says "$pattern"; then break; fi
  done
  unset budget
}
cp "$work/problems.js" "$site/problems.js"
cat >"$site/problems.html" <<'END_OF_PAGE'
<p id="found"></p><script src="engine.js"></script><script src="problems.js"></script>
<script>mpigradEngine().then(e => { const wrong = compare(e); document.getElementById('found').textContent = `${wrong.length} of ${problems.length} differ ${wrong.slice(0, 2)}`; });</script>
END_OF_PAGE
looks_for "of 200 differ" --dump-dom "file://$site/problems.html"
judge 'and in Chromium, from a file' says '0 of 200 differ'
rm -f "$site/problems.html" "$site/problems.js"
looks_for "<svg" --dump-dom "file://$site/calculator.html#scan"
calculates() { says 'xbar' && says '<svg' && says 'The adjoint of scan is MPI_Scan from the last rank'; }
judge 'the calculator runs in a page that is a file' calculates
looks_for "<svg" --dump-dom "file://$site/halo.html"
judge 'so does the halo planner' says 'rank 0 owns inputs 0-3'
looks --dump-dom "file://$site/quiz.html"
judge 'the quiz has ten questions' [ "$(grep -o 'class="question"' "$work/out" | wc -l)" -eq 10 ]
looks --dump-dom "file://$site/lessons/00_reverse_mode.html"
judge 'formulas are mathematics' says '<math'
# On a phone's width nothing is wider than the screen.
for page in index contents comparison coming_from/mpi calculator halo lessons/01_allgather operations/allgather coming_from; do
  sed 's,</body>,<script>addEventListener("load"\, () => { document.title = "width " + document.documentElement.scrollWidth; });</script></body>,' "$site/$page.html" >"$site/$page-phone.html"
  looks --window-size=400,800 --dump-dom "file://$site/$page-phone.html"
  rm -f "$site/$page-phone.html"
  fits() { width=$(sed -n 's/.*<title>width \([0-9]*\)<.*/\1/p' "$work/out"); [ -n "$width" ] && [ "$width" -le 500 ]; }
  judge "$page on a phone" fits
done
summary
