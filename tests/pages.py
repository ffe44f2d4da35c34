"""What tests/structure.py asks of pages, comments and documentation. Each function returns what it finds, as a list, or as counts by file."""

import os
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parent.parent
library = ('framework/', 'ops/', 'comm/', 'models/')
cpp = ('.h', '.cpp', '.cu', '.cuh', '.inc')
hashed = ('.py', '.sh', '.toml', '.txt', '.build', '.yml', '.yaml')
folders = ('.ci', '.github', 'framework', 'ops', 'comm', 'models', 'tests', 'examples')
fuzzed = 'tests/fuzz/found/'

words_of_readme = 700
columns_of_readme = 140
lines_of_page = 120
# Pages that may be long: made from code or from measurements, or lessons, or lists.
long_pages = ('tests/bench/results/', 'examples/lessons/', 'examples/site/literature.md', 'examples/site/environment.md',
              'examples/first/from_numpy.md', 'CHANGELOG.md')
never = r'nobody|whoever|makes of|hands? in|handed in|gone on from|ends to be|played by|as ever'
suspect = r'behind|beside|alone|at all'
user_variables, test_variables = 'examples/site/environment.md', 'tests/README.md'


def files(*endings):
    """Paths from the root, in order, of the project's files with these endings; without builds and what Python and editors leave."""
    paths = [path for path in sorted(root.iterdir()) if path.is_file()]
    paths += [path for folder in folders for path in sorted((root / folder).rglob('*')) if path.is_file()]
    for name in (path.relative_to(root).as_posix() for path in paths):
        if name.endswith(endings) and '__pycache__' not in name and '/.' not in name and not name.startswith(fuzzed):
            yield name


def text_of(name):
    return (root / name).read_text(encoding='utf-8', errors='replace')


def without_code(page):
    """A page's text without blocks of code, code in lines, targets of links and tables."""
    page = re.sub(r'^(```|~~~).*?^\1[`~]*$', '', page, flags=re.M | re.S)
    page = re.sub(r'`[^`\n]*`|\]\([^)]*\)', ' ', page)
    return re.sub(r'^\s*\|.*$', '', page, flags=re.M)


# ---- the README

def words_beyond():
    """The words of README.md, outside code and tables, from the 701st on."""
    return re.findall(r'\w[\w\'.:/-]*', without_code(text_of('README.md')))[words_of_readme:]


def wide_lines():
    """Lines of README.md of more than 140 characters, outside tables."""
    lines = enumerate(text_of('README.md').splitlines(), 1)
    return [f'README.md:{number}: {len(line)} characters' for number, line in lines
            if len(line) > columns_of_readme and not line.lstrip().startswith('|')]


# ---- words

def prose_of(name):
    """The comments of a source, or a page without its blocks of code, each run of spaces as one."""
    text = text_of(name)
    if name.endswith('.md'):
        found = [re.sub(r'^(```|~~~).*?^\1[`~]*$', '', text, flags=re.M | re.S)]
    elif name.endswith(cpp):
        found = [line or block for line, block in re.findall(r'//(.*)|/\*([\s\S]*?)\*/', text)]
    else:
        found = re.findall(r'(?:^|\s)#(.*)', text) + (re.findall(r'"""(.*?)"""', text, re.S) if name.endswith('.py') else [])
    return re.sub(r'\s+', ' ', ' '.join(found))


def counts_of(words):
    """How often the words stand in comments and pages, by file. Results have dates and stay; the changelog quotes old names."""
    counts = {}
    for name in files('.md', *cpp, *hashed):
        if name != 'CHANGELOG.md' and name != 'tests/pages.py' and not re.match(r'tests/bench/results/.*\d{4}-\d\d-\d\d', name):
            count = len(re.findall(rf'\b(?:{words})\b', prose_of(name), re.I))
            if count:
                counts[name] = count
    return counts


def never_words():
    return counts_of(never)


def suspect_words():
    return counts_of(suspect)


# ---- pages

def long_lines_of_pages():
    """By page the lines beyond 120, where there are any."""
    counts = {name: text_of(name).count('\n') - lines_of_page for name in files('.md') if not name.startswith(long_pages)}
    return {name: count for name, count in counts.items() if count > 0}


def heading_anchors(name):
    """The anchors that a forge and pandoc make of a page's headings."""
    text = re.sub(r'^```.*?^```', '', text_of(name), flags=re.M | re.S)
    return {re.sub(r'[^\w\- ]', '', re.sub(r'\[([^\]]*)\]\([^)]*\)', r'\1', each).strip().lower()).replace(' ', '-')
            for each in re.findall(r'^#+ (.*)', text, re.M)}


def broken_links():
    """Links between pages, and entries of the site's table of contents, whose file or heading does not exist."""
    contents = 'examples/site/contents.toml'
    found = [f'{contents}: {name}' for name in re.findall(r'^  \["([^"]+)"', text_of(contents), re.M) if not (root / name).is_file()]
    for page in files('.md'):
        text = re.sub(r'`[^`\n]*`', '', re.sub(r'^```.*?^```', '', text_of(page), flags=re.M | re.S))
        for target in re.findall(r'\]\(([^)\s]+)\)', text):
            path, _, anchor = target.partition('#')
            if '://' in target or target.startswith('mailto:') or (page == 'examples/site/index.md' and path.endswith('.html')):
                continue  # a test of the site follows links between its own pages
            named = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not (root / named).exists() or (anchor and named.endswith('.md') and anchor not in heading_anchors(named)):
                found.append(f'{page}: {target}')
    return found


# ---- environment variables

def variables_of_code():
    """The environment variables that sources and scripts read or set for others: {name: files}."""
    found = {}

    def add(names, name):
        for each in names:
            found.setdefault(each, set()).add(name)

    own, any_name = r'MPIGRAD_[A-Z0-9_]+', r'[A-Z][A-Z0-9_]+'
    for name in files('.cpp', '.h', '.cu', '.sh', '.py', '.build'):
        text = text_of(name)
        if name.endswith(('.cpp', '.h', '.cu')):
            text = re.sub(r'(?<!:)//.*', '', text)
            readers = r'getenv|environment_variable|variable|number|is_set|Options(?: asked)?'
            add(re.findall(rf'\b(?:{readers})\(\s*"({any_name})"', text), name)
            add(re.findall(rf'\bsetenv\("({own}|NCCL_\w+)"', text), name)
            add(re.findall(rf'"({own})"', text) if name.startswith(library) else [], name)
            for names in re.findall(r'\bfirst_of\(\{([^}]*)\}\)', text):
                add(re.findall(rf'"({any_name})"', names), name)
        elif name.endswith('.py'):
            add(re.findall(rf'os\.environ(?:\.get\(|\.setdefault\(|\[)[\'"]({any_name})[\'"]', text), name)
        elif name.endswith('.sh'):
            text = re.sub(r'(?:^|\s)#.*', '', text)
            add(re.findall(r'\$\{?(MPIGRAD(?:_[A-Z0-9_]+)?)\b', text), name)
            add(re.findall(rf'\bend_marked "({own})=', text), name)  # read in /proc
            if name.startswith('examples/'):
                add(set(re.findall(rf'\$\{{({any_name}):[-+?]', text)) - {'ID', 'VERSION_ID'}, name)  # these two are of /etc/os-release
        else:
            add(re.findall(rf"'({own})(?:=|': )", text), name)
    return found


def variables_of_page(page):
    """The names in the first cells of a page's tables."""
    cells = re.findall(r'^\|([^|]*)\|', text_of(page), re.M)
    return {name for cell in cells for name in re.findall(r'`([A-Z][A-Z0-9_]+)`', cell)}


def differing_variables():
    """Variables that are in the code and not on their page, or on a page and not in the code."""
    code, users, tests = variables_of_code(), variables_of_page(user_variables), variables_of_page(test_variables)
    problems = []
    for name, places in sorted(code.items()):
        if any(place.startswith((*library, 'examples/')) for place in places):
            if name not in users:
                problems.append(f'{name} of {min(places)} is not in {user_variables}')
        elif name not in users | tests:
            problems.append(f'{name} of {min(places)} is not in {test_variables}')
    problems += [f'{name} is on both pages' for name in sorted(users & tests)]
    return problems + [f'{name} is on a page, and no code reads it' for name in sorted((users | tests) - set(code))]


# ---- public headers

def public_headers():
    made = subprocess.run([sys.executable, 'models/mpigrad/headers.py', 'models/mpigrad/trainer.h'], cwd=root, capture_output=True, text=True, check=True)
    return made.stdout.split() + ['models/mpigrad/trainer.h']


def undocumented_in(name):
    """Declarations of functions outside classes and `detail` that have no comment: above them, with no empty line between, or at their end."""
    found, depth, inside, statement, documented, first = [], 0, [], '', False, 0
    for number, line in enumerate(text_of(name).splitlines(), 1):
        code, _, comment = re.sub(r'"(?:\\.|[^"\\])*"', '""', line).partition('//')
        if not code.strip():
            documented = bool(comment) or (documented and bool(statement))
            continue
        if code.startswith('#') or code.endswith('\\'):
            continue
        outside = depth == 0 and 'detail' not in inside
        namespace = re.match(r'\s*(?:inline )?namespace ?([\w:]*) ?\{', code)
        if namespace and depth == 0:
            inside.append(namespace[1])
            documented = False
            continue
        if outside:
            if not statement:
                first = number
            statement += ' ' + code.strip()
            if re.search(r'[;{}]\s*$', code) and statement.count('(') == statement.count(')'):
                head = re.sub(r'^\s*(template ?<.*?> (?=[a-z\[A-Z])|\[\[\w+\]\] )*|decltype\(auto\)', '', statement)
                kind = r'\s*(using|struct|class|enum|union|friend|static_assert|extern|typedef|concept|requires|\}|[A-Z_]{4,}\()'
                call = re.match(r'[^=({]*?\b(operator ?\S{1,2}|\w+)\(', head)
                if call and not re.match(kind, head) and not documented and not comment:
                    found.append(f'{name}:{first}: {call[1]}')
                statement = ''
        for sign in code:
            if sign == '{':
                depth += 1
            elif sign == '}':
                if depth == 0 and inside:
                    inside.pop()
                depth = max(0, depth - 1)
        if depth:
            statement = statement if statement.count('(') != statement.count(')') else ''
    return found


def undocumented_functions():
    return [each for name in public_headers() for each in undocumented_in(name)]
