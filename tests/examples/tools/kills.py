"""Kills a training that `elastic` keeps alive at random moments, and says what came of it.

    python3 kills.py MOMENTS SEED FOLDER REFERENCE PROGRAM -- COMMAND...

COMMAND has {out} where the output folder stands; PROGRAM is the ranks' program, REFERENCE the metrics.csv of the same training undisturbed.
In turn one rank is killed, all ranks, `elastic` with all ranks (its node), and `elastic` alone. A training that ends before the last
moment is compared, and another begins. Prints a line for each moment and a table of the kinds; exits with 1 where a checkpoint was
unreadable, a rank that was killed was not named, progress was lost, ranks outlived `elastic`, nothing went on within the time limit, or a curve was another one. How
long it took is told and not judged below that limit, for the machine may be busy.
"""
import glob, os, random, signal, subprocess, sys, time

moments, seed = int(sys.argv[1]), int(sys.argv[2])
folder, reference, program = sys.argv[3:6]
command = sys.argv[7:]
chance = random.Random(seed)
limit = 60  # seconds
kinds = ("one rank", "all ranks", "elastic's node", "elastic alone")
table = {kind: {"moments": 0, "writing": 0, "unreadable": 0, "slow": 0, "seconds": 0.0} for kind in kinds}


def ranks(out):
    found = []
    for entry in os.listdir("/proc"):
        try:
            words = open(f"/proc/{entry}/cmdline", "rb").read().split(b"\0") if entry.isdigit() else []
        except OSError:  # it has ended
            continue
        if len(words) > 2 and words[0].decode(errors="replace") == program and out.encode() in words:
            found.append(int(entry))
    return found


def kill(processes):
    for process in processes:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Training:
    def __init__(self, number):
        self.out, self.log = f"{folder}/round{number}", f"{folder}/round{number}.log"
        self.elastic = None

    def text(self):
        return open(self.log, errors="replace").read() if os.path.exists(self.log) else ""

    def start(self):
        with open(self.log, "ab") as log:
            words = [word.replace("{out}", self.out) for word in command]
            self.elastic = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.begun = time.time()

    def code(self):
        return self.elastic.poll()

    def writes(self):
        """Whether a file is being written, or a kill has just left one behind."""
        try:
            return any(os.stat(part).st_mtime >= self.begun for part in glob.glob(f"{self.out}/.checkpoint.h5.*.part"))
        except FileNotFoundError:
            return False

    def starts(self):
        return self.text().count("elastic: start ")

    def goes_on(self, starts):
        """Whether ranks that were started after so many others have trained."""
        return self.starts() > starts and "epoch " in self.text().split("elastic: start ")[-1]

    def lost(self):
        text = self.text()
        first = text.find("going on from ")
        return first >= 0 and "training begins" in text[first:]

    def curve(self):
        return [line.split(",")[:3] for line in open(f"{self.out}/metrics.csv")]


def until(condition):
    """Seconds until it holds; None: it did not."""
    start = time.time()
    while not condition():
        if time.time() - start > limit:
            return None
        time.sleep(0.02)
    return time.time() - start


failures, rounds = [], 1
expected = [line.split(",")[:3] for line in open(reference)]


def compare(training):
    if training.code() != 0:
        failures.append(f"elastic ended with {training.code()}: {training.log}")
    elif training.curve() != expected:
        failures.append(f"round {rounds}: another curve than that of the training that was spared")
    if training.lost():
        failures.append(f"round {rounds}: training began again although there was a checkpoint")


training = Training(rounds)
training.start()
done = 0
while done < moments:
    wait = 0.3 + chance.random()
    time.sleep(wait)
    if training.code() is None and not ranks(training.out):
        until(lambda: ranks(training.out) or training.code() is not None)
    if training.code() is not None:  # by itself
        compare(training)
        if failures:
            break
        rounds += 1
        training = Training(rounds)
        training.start()
        continue
    kind = kinds[done % len(kinds)]
    row = table[kind]
    skipped, starts = training.text().count("warning: skipped"), training.starts()
    victims, writing = ranks(training.out), training.writes()
    if not victims:
        continue  # it has just ended
    if kind in ("one rank", "all ranks"):
        kill(victims[:1] if kind == "one rank" else victims)
        # Until the training goes on, in ranks that have been started anew.
        seconds = until(lambda: training.code() is not None or training.goes_on(starts))
        if training.code() == 0 and training.starts() == starts:
            continue  # its ranks were at their end
        if kind == "one rank" and f"(PID {victims[0]}) has ended: signal 9" not in training.text():
            failures.append(f"moment {done + 1}: no message says that process {victims[0]} was killed: {training.log}")
    else:
        kill([training.elastic.pid] + (victims if kind == "elastic's node" else []))
        training.elastic.wait()
        seconds = until(lambda: not ranks(training.out))  # until none is left
        writing = writing or training.writes()
        training.start()
    done += 1
    unreadable = training.text().count("warning: skipped") - skipped
    row["moments"] += 1
    row["writing"] += writing
    row["unreadable"] += unreadable
    row["slow"] += seconds is None or seconds > 10
    row["seconds"] = max(row["seconds"], seconds or limit)
    print(f"{done:4d}  {kind:15s} after {wait:.2f} s{', during a write' if writing else '':16s}  "
          f"{'hangs' if seconds is None else f'{seconds:.2f} s'}{'  a checkpoint is unreadable' if unreadable else ''}", flush=True)
    if seconds is None:
        failures.append(f"moment {done}: nothing went on for {limit} s: {training.log}")
        break
if not failures:
    training.elastic.wait()
    compare(training)
else:
    kill([training.elastic.pid] + ranks(training.out))
unreadable = sum(training_log.count("warning: skipped") for training_log in
                 (open(f"{folder}/round{n}.log", errors="replace").read() for n in range(1, rounds + 1)))
if unreadable:
    failures.append(f"{unreadable} checkpoints were unreadable")
print(f"\nseed {seed}, {done} moments in {rounds} trainings")
print(f"{'killed':15s}{'moments':>9s}{'in a write':>12s}{'unreadable':>12s}{'over 10 s':>11s}{'longest, s':>12s}")
for kind, row in table.items():
    print(f"{kind:15s}{row['moments']:9d}{row['writing']:12d}{row['unreadable']:12d}{row['slow']:11d}{row['seconds']:12.2f}")
print("longest: until training went on, or, where elastic was killed, until no rank was left")
print(f"curves of {rounds} trainings: {'equal to that of the one that was spared' if not failures else 'see below'}")
for failure in failures:
    print(f"failed: {failure}")
sys.exit(1 if failures else 0)
