"""Formulas of the texts, which are plain words in sources and on a terminal, as mathematics for pages: xbar_r = A^T ybar. Only what is written
in the project's own notation is known; everything else stays as it is."""

import re

# An inner product, or a letter with a bar, a subscript or an exponent: <A x, ybar>, x_{P-1}, J_i^T, h^2.
SYMBOL = re.compile(r"<[^<>\n]{1,24}, [^<>\n]{1,24}>|\b(?:d?[a-zA-Z]|[a-zA-Z]bar)(?:_(?:\{[^}\n]*\}|[A-Za-z0-9]))?(?:\^[T0-9])?(?![A-Za-z0-9_])")
FUNCTIONS = {"exp", "tanh", "log", "sqrt", "max", "min", "sum", "sin", "cos"}
SYMBOLS = {"...": r"\dots ", "<=": r"\le ", ">=": r"\ge ", "->": r"\to ", "*": r"\cdot "}


def tex(formula):
    """One formula as TeX."""
    text = formula.strip()
    text = re.sub(r"<([^<>]*?), ([^<>]*?)>", r"\\langle \1,\\, \2\\rangle ", text)
    parts = re.split(r"(\\[a-zA-Z]+|\\,|[a-zA-Z]+(?:_(?:\{[^}]*\}|[A-Za-z0-9]+))?|\.\.\.|<=|>=|->|\*)", text)
    result = ""
    for part in parts:
        if part in SYMBOLS:
            result += SYMBOLS[part]
        elif re.fullmatch(r"\\[a-zA-Z]+|\\,", part or ""):
            result += part
        elif re.fullmatch(r"[a-zA-Z]+(?:_(?:\{[^}]*\}|[A-Za-z0-9]+))?", part or ""):
            name, _, sub = part.partition("_")
            sub = "_{" + sub.strip("{}") + "}" if sub else ""
            if re.fullmatch(r"[a-zA-Z]bar", name):
                result += rf"\bar{{{name[0]}}}{sub}"
            elif name in FUNCTIONS:
                result += (r"\sum" if name == "sum" and sub else rf"\mathrm{{{name}}}\,") + sub
            elif len(name) <= 2:
                result += name + sub
            else:
                result += rf"\text{{ {name} }}"
                result += sub
        else:
            result += (part or "").replace("|", r"\vert ").replace("&", r"\&").replace("%", r"\%").replace("#", r"\#")
    return result.replace(r"}\text{", "}\\,\\text{")


def is_formula(line):
    words = re.findall(r"[a-zA-Z]{3,}", re.sub(r"[a-zA-Z]bar|" + "|".join(FUNCTIONS), "", line))
    return "=" in line and len(words) <= 6 and not re.search(r"[\[\]`]|build/|mpiexec", line)


def inline(text):
    """Symbols inside of sentences, except in code."""
    pieces = re.split(r"(```.*?```|~~~~.*?~~~~|<figure.*?</figure>|`[^`]*`|\]\([^)]*\)|https?://\S+)", text, flags=re.S)
    mathematical = re.compile(r"bar\b|bar_|[_^<]")
    for i in range(0, len(pieces), 2):
        pieces[i] = SYMBOL.sub(lambda m: f"${tex(m[0]).strip()}$" if mathematical.search(m[0]) else m[0], pieces[i])
    return "".join(pieces)


def head_of(source):
    """The comment at the head of a lesson as Markdown: sentences, formulas, and drawings made of letters."""
    lines = []
    for line in source.splitlines():
        if not line.startswith("//"):
            break
        lines.append(line[2:])
    blocks, block = [], []
    for line in lines[1:] + [""]:
        if line.strip():
            block.append(line[1:] if line.startswith(" ") else line)
        elif block:
            blocks.append(block)
            block = []
    result = []
    for block in blocks:
        # A paragraph, or indented lines; one may follow the other without an empty line.
        runs, current, state = [], [], None
        for line in block:
            now = line.startswith("  ")
            if state is not None and now != state:
                runs.append((state, current))
                current = []
            current.append(line)
            state = now
        runs.append((state, current))
        for indented, run in runs:
            if not indented:
                result.append(inline(" ".join(run)))
            elif all(is_formula(line) for line in run):
                for line in run:
                    formulas = re.split(r" {3,}", line.strip())
                    result.append("$$" + r" \qquad ".join(tex(each).strip() for each in formulas) + "$$")
            else:
                result.append("~~~~\n" + "\n".join(line[2:] for line in run) + "\n~~~~")
    return "\n\n".join(result) + "\n"
