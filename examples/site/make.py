"""make.py ROOT BUILD [--out FOLDER]: the site, static files that need neither a server nor a network: the pages of contents.toml, lessons,
exercises, a page for each operation, the reference (Doxygen), and the calculator and the halo planner, compiled for browsers where there is
Emscripten. Needs pandoc and Doxygen. `ninja -C build docs` calls it; the site lies in build/site."""

import argparse
import concurrent.futures
import html
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).parents[1] / "lessons/exercises")]
import engine
import mathematics
import reference
import tasks

try:
    import tomllib
except ModuleNotFoundError:
    sys.exit("make.py: Python 3.11 or later is needed")

parser = argparse.ArgumentParser(prog="make.py")
parser.add_argument("root", type=pathlib.Path)
parser.add_argument("build", type=pathlib.Path)
parser.add_argument("--out", type=pathlib.Path)
parser.add_argument("--without", action="append", default=[], choices=["reference", "engine"], help="leave it out")
arguments = parser.parse_args()
root, build = arguments.root.resolve(), arguments.build.resolve()
out = (arguments.out or build / "site").resolve()
here, lessons = root / "examples/site", root / "examples/lessons"
pages = []  # (path below out, title, Markdown, scripts)


def page(path, title, text, scripts=()):
    pages.append((path, title, text, scripts))


def tool(*words):
    done = subprocess.run([build / "examples" / words[0], *words[1:]], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"make.py: {' '.join(map(str, words))}: {done.stderr}")
    return done.stdout


def code(text, kind=""):
    return f"\n~~~~ {{{'.' + kind if kind else ''}}}\n{text.rstrip()}\n~~~~\n"


def drawing(path, description):
    """An SVG file in the page itself, so that it scales and needs no other file."""
    return f'\n<figure aria-label="{html.escape(description)}">\n{path.read_text()}\n</figure>\n'


# ---- the table of contents: which page of the site each of the project's own pages becomes
sections_of_site = tomllib.loads((here / "contents.toml").read_text())["section"]
links = {source: path for section in sections_of_site for source, path, _ in section["pages"] if source}
results = "tests/bench/results/"
links |= {f"{results}{result.name}": f"results/{result.stem}.html" for result in (root / results).glob("*.*") if result.suffix in (".md", ".html")}


def relinked(text, source, path):
    """Links of the page `source` of the project as links of the page `path` of the site; those to other files stay words."""
    def link(match):
        words, target = match.groups()
        target, mark, anchor = target.partition("#")
        named = os.path.normpath(os.path.join(os.path.dirname(source), target)) if target else source
        if named in links:
            return f"[{words}]({os.path.relpath(links[named], os.path.dirname(path) or '.') if target else ''}{mark}{anchor})"
        return match[0] if "://" in target or target.endswith(".html") else words

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]*)\)", link, text)


def lesson_text(text, source, path):
    """The same for pages of the lessons, whose formulas become mathematics."""
    return mathematics.inline(relinked(text, source, path))


# ---- lessons: the text at the head of a source, what the README asks, the source
readme = (lessons / "README.md").read_text()
sources = sorted(lessons.glob("[0-9][0-9]_*.cpp"))
names = {source.stem: source for source in sources}
pictures = json.loads((here / "pictures.json").read_text())
work = build / "site-work"
work.mkdir(parents=True, exist_ok=True)

head, *sections = readme.split("\n## ")
asked = {}
for section in sections:
    title, _, body = section.partition("\n")
    for stem in names:
        if f"`{stem}`" in title:
            asked[stem] = (title.replace(f": `{stem}`", ""), body)


def exercises_of(number):
    return sorted(path.stem for path in (lessons / "exercises").glob(f"*/{number}[a-z]_*.cpp"))


for stem, source in names.items():
    if stem not in asked:
        continue
    title, body = asked[stem]
    text = f"# {title}\n" + mathematics.head_of(source.read_text())
    for picture in pictures.get(stem, []):
        target = work / f"{stem}_{len(picture)}.svg"
        words = shlex.split(picture["command"])
        tool(*words, "--picture", target)
        text += drawing(target, picture["shows"]) + f"\n*{picture['shows']}:* `build/examples/{picture['command']}`\n"
    text += "\n## Ask it\n" + lesson_text(body, "examples/lessons/README.md", f"lessons/{stem}.html")
    judged = exercises_of(stem[:2])
    if judged:
        text += "\n## Exercises with automatic checks\n\n" + "".join(f"* [{name}](../exercises/{name}.html)\n" for name in judged)
    text += "\n## The program\n" + code(source.read_text(), "cpp")
    page(f"lessons/{stem}.html", title, text)
contents = lesson_text(head, "examples/lessons/README.md", "lessons/index.html") + "\n\n" + "".join(f"* [{asked[stem][0]}]({stem}.html)\n" for stem in names if stem in asked)
page("lessons/index.html", "Lessons", contents)
# ---- exercises
listed = ""
for path in sorted((lessons / "exercises").glob("*/[0-9]*.cpp"), key=lambda path: path.stem):
    text, _ = tasks.task_and_solution(path)
    first = text.split("\n", 1)[0].removeprefix("// ").rstrip(".")
    listed += f"* [{first}]({path.stem}.html)\n"
    page(f"exercises/{path.stem}.html", first, f"# {first}\n" + code(text, "cpp") + "\nWhat judges it:\n" + code((path.parent / "checks" / f"{path.stem}.inc").read_text(), "cpp"))
page("exercises/index.html", "Exercises", lesson_text((lessons / "exercises/README.md").read_text(), "examples/lessons/exercises/README.md", "exercises/index.html") + "\n" + listed)

# ---- operations
table = tomllib.loads((here / "operations.toml").read_text())
calculator = {}
rows = "| operation | | |\n|---|---|---|\n"
for each in table["operation"]:
    name = each["name"]
    words = shlex.split(each["example"])
    target = work / f"operation_{name}.svg"
    printed = tool("adjoint", *words, "--picture", target)
    sentence = next(line for line in printed.splitlines() if line.startswith("The adjoint of"))
    given = dict(zip((word.removeprefix("--") for word in words[1::2]), words[2::2]))
    calculator[name] = given
    text = f"# {name}\n\n**Definition.** {each['definition']}\n\n**Adjoint.** {sentence}\n\n**Cost.** {each['cost']}.\n\n"
    text += "**Matrix**, transpose and messages:\n" + drawing(target, f"{name}: matrix, transpose, messages")
    text += f"\n**In a program:**\n{code(each['cpp'], 'cpp')}\n**Example**, [change it](../calculator.html#{name}):\n" + code(f"$ build/examples/adjoint {each['example']}\n{printed}")
    page(f"operations/{name}.html", name, mathematics.inline(text))
    rows += f"| [{name}]({name}.html) | {each['definition']} | {sentence.split(' is ', 1)[1]} |\n"
for kind, title in (("other", "between ranks, composed or general"), ("local", "of one rank")):
    rows += f"\n## Operations {title}\n\n| operation | | adjoint |\n|---|---|---|\n"
    for each in table[kind]:
        slug = each["name"].replace(" ", "_")
        text = f"# {each['name']}\n\n**Definition.** {each['definition']}\n\n**Adjoint.** {each['adjoint']}.\n\n**Cost.** {each['cost']}.\n\n**In a program:**\n{code(each['cpp'], 'cpp')}"
        text += f"\n**Example**, a column for each tensor:\n{code(each['numbers'], 'text')}" if "numbers" in each else ""
        page(f"operations/{slug}.html", each["name"], mathematics.inline(text))
        rows += f"| [{each['name']}]({slug}.html) | {each['definition']} | {each['adjoint']} |\n"
page("operations/index.html", "Operations", mathematics.inline(f"# Differentiable operations\n\n## MPI's operations, and what belongs to them\n\n{rows}"))

# ---- tools, quiz, literature
fields = (here / "forms.md").read_text().split("\n# ")
page("calculator.html", "Adjoint calculator", "# " + fields[1], ["engine.js", "examples.js", "tools.js"])
page("halo.html", "Halo planner", "# " + fields[2], ["engine.js", "examples.js", "tools.js"])
page("quiz.html", "Quiz", "# Ten questions\n\n<p id=\"score\"></p>\n\n<div id=\"quiz\"></div>\n", ["questions.js", "tools.js"])
front = re.sub(r"<!-- program: (\S+) -->", lambda match: code((root / match[1]).read_text(), "cpp"), (here / "index.md").read_text())
front = re.sub(r"<!-- picture: (\w+) -->", lambda match: drawing(work / f"{match[1]}.svg", "An allgather of three ranks, its transpose, and the messages both ways"), front)
page("index.html", "mpigrad", front)

# ---- the table of contents, and the project's own pages
contents = "# Contents\n"
for section in sections_of_site:
    contents += f"\n## {section['title']}\n\n{section['says']}\n\n" + "".join(f"* [{title}]({path})\n" for _, path, title in section["pages"])
page("contents.html", "Contents", contents)
made = {path for path, *_ in pages}
images = [(report, out / "results" / report.name) for report in (root / results).glob("*.html")]  # (file, copy)
for source, path in links.items():
    if path not in made and not source.endswith(".html"):
        text = (root / source).read_text()
        title = re.search(r"^# (.*)", text, re.M)[1]
        page(path, title, (lesson_text if source.startswith("examples/lessons/") else relinked)(text, source, path))
        images += [((root / source).parent / name, (out / path).parent / name) for name in re.findall(r"!\[[^\]]*\]\(([^):]+)\)", text)]


def write(entry):
    path, title, text, scripts = entry
    target = out / path
    target.parent.mkdir(parents=True, exist_ok=True)
    command = ["pandoc", "--from", "markdown-smart-yaml_metadata_block", "--to", "html5", "--mathml", "--template", here / "page.html", "--metadata", f"pagetitle={title}",
               "--variable", f"title={title}", "--variable", f"up={'../' * path.count('/')}", "--wrap=preserve", "--output", target]
    for script in scripts:
        command += ["--variable", f"script={script}"]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    if done.returncode or done.stderr:
        sys.exit(f"make.py: pandoc, {path}: {done.stderr}")


# Only the output of an earlier run is replaced.
marker = out / ".made-by-mpigrad"
if out.exists() and any(out.iterdir()) and not marker.exists():
    sys.exit(f"make.py: {out} is there and was not made by this program")
if out.exists():
    shutil.rmtree(out)
out.mkdir(parents=True)
marker.touch()
with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
    list(pool.map(write, pages))
for source, copy in images:
    shutil.copy(source, copy)
for name in ("style.css", "tools.js"):
    shutil.copy(here / name, out / name)
(out / "questions.js").write_text("const quizQuestions = " + (here / "quiz.json").read_text().strip() + ";\n")
(out / "examples.js").write_text("const calculatorExamples = " + json.dumps(calculator) + ";\n")
if "engine" in arguments.without or not engine.make(root, work, out / "engine.js"):
    (out / "engine.js").write_text("// made without Emscripten\n")
if "reference" not in arguments.without:
    reference.make(root, build, out / "reference", here, work)
print(f"{len(pages)} pages in {out}")
