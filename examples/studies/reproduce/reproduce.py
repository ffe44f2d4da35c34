"""Runs the studies of claims/*.toml and writes one page of published and own results. reproduce.sh calls it."""
import argparse
import base64
import csv
import datetime
import html
import json
import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
h1{font-size:1.6rem}h2{font-size:1.25rem;margin-top:2.5rem;border-top:1px solid #ccc;padding-top:1rem}
table{border-collapse:collapse;margin:.7rem 0;width:100%}th,td{border:1px solid #ccc;padding:.3rem .5rem;text-align:left;vertical-align:top}
th{background:#f2f2f2}td.own{background:#f4f8ff}.failed{color:#a00}img{max-width:100%}pre,code{font-size:12.5px}
pre{overflow-x:auto;background:#f7f7f7;padding:.6rem;white-space:pre-wrap}.scroll{overflow-x:auto;font-size:13px}
@media print{h2{break-before:page}h2:first-of-type{break-before:auto}table,img{break-inside:avoid}body{max-width:none}}"""


def refuse(message):
    print(f"reproduce: {message}", file=sys.stderr)
    sys.exit(2)


def read_claims(path):
    """The tables of a folder's files, in their order, checked: names that are used exist.

    [[document]]  name, title, source; not_shown: what has no run
    [[run]]       a command of one document, run in a folder of its own; `quick` and `full` are its two sizes, with minutes on two
                  cores. {build} is examples/ in the build folder, {root} the sources, {two} starts two ranks. Standard output is
                  output.txt. `show` lists pictures and tables (CSV) of the folder that the page shows.
    [[claim]]     published: the document's sentence or number in our words; where: its place; ours: a sentence with {values} of
                  the run's files: [file, row, column] of CSV, [file, path] of JSON, [file, regular expression] of text.
                  differs: what differs and why.
    """
    tables = {"document": [], "run": [], "claim": []}
    for file in sorted(path.glob("*.toml")):
        for kind, list_ in tomllib.loads(file.read_text()).items():
            tables[kind] += list_
    documents = {d["name"] for d in tables["document"]}
    runs = {r["name"]: r for r in tables["run"]}
    for run in tables["run"]:
        assert run["document"] in documents and len(run["minutes"]) == 2, run
    for claim in tables["claim"]:
        assert claim["run"] in runs and claim["document"] in documents, claim
        assert set(re.findall(r"{(\w+)}", claim["ours"])) == set(claim.get("values", {})), claim["ours"]
    return tables


def rounded(cell):
    """Four digits of a number with more than the documents print."""
    return f"{float(cell):.4g}" if len(cell) > 14 and re.fullmatch(r"-?\d+\.\d+(e[-+]?\d+)?", cell) else cell


def look_up(folder, place):
    """A value of a run's files: [file, row, column] of CSV, [file, path] of JSON, [file, regular expression] of text."""
    path = folder / place[0]
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        if place[1] in ("first", "last"):
            return rounded(rows[0 if place[1] == "first" else -1][place[2]])
        wanted = dict(item.split("=", 1) for item in place[1].split(";"))
        return rounded(next(row for row in rows if all(row[key] == value for key, value in wanted.items()))[place[2]])
    if path.suffix == ".json":
        value = json.loads(path.read_text())
        for key in place[1].split("/"):
            value = value[int(key)] if isinstance(value, list) else value[key]
        if value is None:
            raise ValueError(f"{place[1]} has no number")
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    found = re.search(place[1], path.read_text(errors="replace"), re.MULTILINE)
    return next(group for group in found.groups() if group is not None).strip().replace("\n", "; ")


def run_study(run, size, folder, build, launcher):
    """Runs the command unless it has ended well; the record of its last run."""
    record_file = folder / "run.json"
    command = run[size].format(build=build, root=ROOT, two=f"{launcher} -n 2")
    if record_file.exists():
        record = json.loads(record_file.read_text())
        if record["status"] == 0 and record["command"] == command:
            print(f"{run['name']}: done before, {record['seconds']:.0f} s", flush=True)
            return record
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{run['name']}: about {run['minutes'][size == 'full']} minutes", flush=True)
    begun = time.time()
    with open(folder / "output.txt", "wb") as out, open(folder / "errors.txt", "wb") as errors:
        status = subprocess.run(["sh", "-c", command], cwd=folder, stdout=out, stderr=errors, stdin=subprocess.DEVNULL).returncode
    commit = subprocess.run(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    record = {"command": command, "status": status, "seconds": time.time() - begun, "commit": commit or "unknown",
              "date": datetime.date.today().isoformat(), "machine": machine()}
    record_file.write_text(json.dumps(record, indent=1))
    print(f"{run['name']}: {'done' if status == 0 else f'FAILED with status {status}'}, {record['seconds']:.0f} s", flush=True)
    return record


def machine():
    model = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{model[1] if model else os.uname().machine}, {len(os.sched_getaffinity(0))} cores"


def shown_file(path):
    if not path.exists():
        return f'<p class="failed">{html.escape(path.name)} is missing</p>'
    if path.suffix == ".png":
        return f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
    if path.suffix == ".csv":
        with open(path, newline="") as file:
            header, *rows = csv.reader(file)
        cells = "".join("<tr>" + "".join(f"<td>{html.escape(rounded(c))}</td>" for c in row) + "</tr>" for row in rows)
        return f'<div class="scroll"><table><tr>{"".join(f"<th>{html.escape(c)}</th>" for c in header)}</tr>{cells}</table></div>'
    return f"<pre>{html.escape(path.read_text(errors='replace'))}</pre>"


def own_sentence(claim, folder, record):
    if record["status"] != 0:
        last = [(folder / name).read_text(errors="replace").strip().splitlines()[-1:] for name in ("errors.txt", "output.txt")]
        return f'<span class="failed">the run failed with status {record["status"]}: {html.escape("; ".join(sum(last, [])))}</span>', False
    try:
        values = {name: look_up(folder, place) for name, place in claim.get("values", {}).items()}
    except Exception as error:
        return f'<span class="failed">not found in the run\'s files: {html.escape(repr(error))}</span>', False
    return html.escape(claim["ours"].format(**values)), True


def page(tables, chosen, size, out, records, build):
    """The report, and whether each claim has a value."""
    complete = True
    text = [f'<!doctype html><html lang="en"><meta charset="utf-8"><title>mpigrad: published and own results</title><style>{STYLE}</style>',
            "<h1>Published results, and ours</h1>",
            f"<p>Written by <code>sh examples/studies/reproduce.sh{' --quick' if size == 'quick' else ''}"
            f"{''.join(' ' + d for d in chosen) if len(chosen) < len(tables['document']) else ''}</code>, {datetime.date.today()}, "
            f"commit {', '.join(dict.fromkeys(r['commit'] for r in records.values()))}, "
            f"{html.escape('; '.join(dict.fromkeys(r['machine'] for r in records.values())))}. "
            + ("Quick runs: small data and few seeds show that every study runs; numbers to quote come from the full runs.</p>" if size == "quick" else "Full runs.</p>")]
    for document in tables["document"]:
        if document["name"] not in chosen:
            continue
        text.append(f'<h2 id="{document["name"]}">{html.escape(document["title"])}</h2><p>{html.escape(document["source"])}</p>'
                    "<table><tr><th>published</th><th>where</th><th>ours</th><th>what differs, and why</th><th>run</th></tr>")
        for claim in (c for c in tables["claim"] if c["document"] == document["name"]):
            own, found = own_sentence(claim, out / claim["run"], records[claim["run"]])
            complete &= found
            text.append(f'<tr><td>{html.escape(claim["published"])}</td><td>{html.escape(claim["where"])}</td><td class="own">{own}</td>'
                        f'<td>{html.escape(claim["differs"])}</td><td>{claim["run"]}</td></tr>')
        text.append("</table>")
        if "not_shown" in document:
            text.append(f'<p>Not shown: {html.escape(document["not_shown"])}</p>')
        for run in (r for r in tables["run"] if r["document"] == document["name"]):
            record = records[run["name"]]
            command = record["command"].replace(str(build), "build/examples").replace(str(ROOT) + "/", "")
            text.append(f'<h3>{run["name"]}</h3><pre>{html.escape(command)}</pre><p>{record["seconds"]:.0f} s, {record["date"]}, commit {record["commit"]}, '
                        f'{html.escape(record["machine"])}</p>')
            if record["status"] == 0:
                text += [shown_file(out / run["name"] / name) for name in run.get("show", [])]
    return "\n".join(text) + "</html>\n", complete


def main():
    parser = argparse.ArgumentParser(prog="reproduce.sh", allow_abbrev=False)
    parser.add_argument("documents", nargs="*", metavar="DOCUMENT")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--programs", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--build", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--launcher", default="mpiexec", help=argparse.SUPPRESS)
    parser.add_argument("--claims", type=Path, default=Path(__file__).with_name("claims"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    tables = read_claims(given.claims)
    names = [d["name"] for d in tables["document"]]
    for name in given.documents:
        if name not in names:
            refuse(f"there is no document {name}; there are {', '.join(names)}")
    chosen = given.documents or names
    size = "quick" if given.quick else "full"
    runs = [r for r in tables["run"] if r["document"] in chosen]
    if given.programs:
        print(*sorted({f"examples/{program}" for run in runs for program in run["programs"]}))
    elif given.list:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `--list | head`
        for document in (d for d in tables["document"] if d["name"] in chosen):
            own = [r for r in runs if r["document"] == document["name"]]
            print(f"{document['name']}: {document['title']}\n  {sum(r['minutes'][0] for r in own):.1f} minutes with --quick, "
                  f"{sum(r['minutes'][1] for r in own):.0f} without: {', '.join(r['name'] for r in own)}")
            for claim in (c for c in tables["claim"] if c["document"] == document["name"]):
                print(f"  {claim['where']}: {claim['published']}")
    elif not given.check:
        top = given.build.resolve()
        out = top / ("reproduce-quick" if given.quick else "reproduce")
        build = top / "examples"
        records = {run["name"]: run_study(run, size, out / run["name"], build, given.launcher) for run in runs}
        text, complete = page(tables, chosen, size, out, records, build)
        report = out / "report.html"
        report.with_suffix(".part").write_text(text)
        report.with_suffix(".part").replace(report)
        print(f"page: {report}")
        sys.exit(0 if complete and all(r["status"] == 0 for r in records.values()) else 1)


if __name__ == "__main__":
    main()
