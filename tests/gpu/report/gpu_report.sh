# Sourced by tests/gpu.sh: the journal and the report.
#
#   $journal holds all output, each line when it is printed, so that a killed command loses only its last line:
#     @run TIME KIND COMMIT GPU         a command began; KIND is real or emulated
#     @begin STEP TIME                  followed by the output of the step
#     @end STEP RESULT SECONDS P F K    RESULT: passed, failed or skipped; numbers of its tests
#     @cut STEP SECONDS                 the time limit of the whole command was reached
#   A step without an end was interrupted. The report is made of the journal after every step.
#
#   keep_commit FOLDER   writes the commit of the tree to a file there
#   commit_of_tree    the commit of this project, also inside another repository and without a repository
#   states            for each step of the journal: NAME RESULT SECONDS P F K INTERRUPTIONS; RESULT may be interrupted
#   write_report      writes $report/gpu-DATE-COMMIT.md
#   keep_report       copies it to tests/bench/results and fills the table of tests/gpu/README.md, if the GPU was real
#
# POSIX sh.

# shellcheck shell=sh disable=SC2154

results=$root/tests/bench/results

# tree_sum LIST: a checksum of the files named in the list.
tree_sum() { (cd "$root" && tr '\n' '\0' <"$1" | xargs -0 cat 2>&1 | cksum); }
# keep_commit FOLDER: for a tree that is copied without its repository.
keep_commit() {
  commit_of_tree >"$1/commit"
  git -C "$root" ls-files 2>/dev/null | grep -v '^tests/gpu/README\.md$' >"$1/files"
  tree_sum "$1/files" >"$1/sum"
}

# MPIGRAD_COMMIT if set; otherwise git's, if the tree is the top of a repository and not a folder of another one; but the bundle's
# commit, if the tree equals the bundle's file for file and git reports changes or no repository. The report itself changes
# tests/gpu/README.md.
commit_of_tree() {
  carried=$root/.gpu-bundle head=
  if [ "$(git -C "$root" rev-parse --show-toplevel 2>/dev/null)" = "$(cd "$root" && pwd -P)" ]; then
    head=$(git -C "$root" rev-parse --short HEAD 2>/dev/null || echo unborn)
    git -C "$root" diff --quiet HEAD -- . ':!tests/gpu/README.md' 2>/dev/null || head=$head-modified
  fi
  if [ -n "${MPIGRAD_COMMIT:-}" ]; then
    head=$MPIGRAD_COMMIT
  elif [ -s "$carried/sum" ] && { [ -z "$head" ] || [ "${head%-modified}" != "$head" ]; }; then
    if [ "$(tree_sum "$carried/files")" = "$(cat "$carried/sum")" ]; then
      head=$(cat "$carried/commit")
    elif [ -z "$head" ]; then
      head=$(cat "$carried/commit")
      head=${head%-modified}-modified
    fi
  fi
  printf '%s\n' "${head:-unknown}"
}

# A killed program may have left half a line.
append() {
  if [ -s "$journal" ] && [ -n "$(tail -c 1 "$journal")" ]; then echo >>"$journal"; fi
  printf '%s\n' "$*" >>"$journal"
}

commit_of_journal() { awk '$1 == "@run" { print $4; exit }' "$1" 2>/dev/null; }

states() {
  [ -f "$journal" ] || return 0
  awk '
    $1 == "@begin" { if (!($2 in result)) order[++n] = $2; result[$2] = "interrupted"; numbers[$2] = "0 0 0 0"; open[$2]++ }
    $1 == "@end" { result[$2] = $3; numbers[$2] = $4 " " $5 " " $6 " " $7; open[$2] = 0 }
    $1 == "@cut" { open[$2]-- }
    END { for (i = 1; i <= n; i++) print order[i], result[order[i]], numbers[order[i]], open[order[i]] }' "$journal"
}

# Hypotheses, and the names of their values in lines `measured: NAME VALUE` of programs.
hypotheses() {
  cat <<'END'
convolutions within 5 % of bare cuDNN's best plan (ratio at most 1.05)|convolutions-
3D U-Net 128^3 batch 2: at least 1.4 times as fast as the faster PyTorch (eager, compiled; channels last, bfloat16), with at most 0.8 of its memory|beside-peer-unet3d-
3D U-Net 128^3 batch 7: 84 samples/s or more (76.2 is the best published rate of one H200: MLPerf Training)|samples-unet3d-128-
CosmoFlow (hybrid) compared with PyTorch|beside-peer-128-
MLPerf's CosmoFlow 128^3 batch 1: 446 samples/s or more (twice the best published rate of a GPU, 223 on an H100: MLPerf HPC v3.0, 32 GPUs, batch 1 each, input and allreduce included, which this has not)|samples-mlperf-128-1-
CosmoFlow (hybrid) 128^3 batch 8: 600 samples/s or more|samples-128-8-
CosmoFlow (hybrid) 128^3 batch 4, TF32: a step of 4.5 ms or less, 889 samples/s|samples-128-4-tf32
CosmoFlow 512^3 x 4 trains on one GPU of 141 GB|memory-512-
pools, norms, activations and the optimizer at 80 % of measured copy bandwidth, 70 % in bfloat16|bandwidth-
NT-Xent, N = 65,536, D = 768, bfloat16: at most 0.4 GB beyond the embeddings|nt-xent-memory
NT-Xent, the same: at least 60 % of the rate of its products in cuBLAS|nt-xent-rate
END
}

print_report() {
  awk -v commit="$(commit_of_journal "$journal")" -v date="$(date_of_journal)" -v hypotheses="$(hypotheses)" -v table="$(steps)" '
    BEGIN {
      last = split(table, line, "\n")
      for (i = 1; i <= last; i++) { split(line[i], field, " "); step[i] = field[1]; expected[field[1]] = field[2]; limit[field[1]] = field[3] }
    }
    $1 == "@run" {
      kind = $3; machine = $0; sub(/^@run [^ ]+ [^ ]+ [^ ]+ /, "", machine); current = ""
      if (!(machine in met)) { met[machine] = ++machines; machine_name[machines] = machine " (" kind ")" }
      next
    }
    $1 == "@begin" {
      current = $2; on[current] = met[machine]; seconds[current] = ""
      # Output of an interrupted step is kept; output of a finished step is replaced.
      text[current] = result[current] == "interrupted" || result[current] ~ /^cut/ ? text[current] "(" result[current] "; begun again)\n" : ""
      result[current] = "interrupted"
      next
    }
    $1 == "@end" { result[$2] = $3; seconds[$2] = $4; p[$2] = $5; f[$2] = $6; k[$2] = $7; current = ""; next }
    $1 == "@cut" { result[$2] = "cut short: the time was over"; seconds[$2] = $3; current = ""; next }
    $1 == "@note" { notes = notes "* " substr($0, 7) "\n"; next }
    current != "" {
      text[current] = text[current] $0 "\n"
      if ($1 == "measured:") { name = $2; value = $0; sub(/^measured: [^ ]+ /, "", value); if (!(name in measured)) names[++measures] = name
        measured[name] = value }
    }
    END {
      printf "# On %s, %s, commit %s\n\n", kind == "real" ? "a GPU" : "the GPU emulator", date, commit
      for (i = 1; i <= machines; i++) printf "* machine %d: %s\n", i, machine_name[i]
      printf "%s", notes
      print "\n## Hypotheses and measured values\n\n| hypothesis | measured |\n|---|---|"
      count = split(hypotheses, line, "\n")
      for (i = 1; i <= count; i++) {
        split(line[i], field, "|"); cell = ""
        for (m = 1; m <= measures; m++) if (index(names[m], field[2]) == 1) cell = cell (cell == "" ? "" : "; ") names[m] ": " measured[names[m]]
        printf "| %s | %s |\n", field[1], cell == "" ? "not measured" : cell
      }
      print "\n## Steps\n\n| step | result | seconds | expected | limit | tests: passed | failed | skipped | machine |\n|---|---|---|---|---|---|---|---|---|"
      for (i = 1; i <= last; i++) {
        s = step[i]
        if (s in result) printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", s, result[s], seconds[s], expected[s], limit[s], p[s], f[s], k[s], on[s]
        else printf "| %s | not started | | %s | %s | | | | |\n", s, expected[s], limit[s]
      }
      for (i = 1; i <= last; i++) {
        s = step[i]
        if (!(s in text)) continue
        markdown = text[s] ~ /(^|\n)\|[^\n]*\|/
        printf "\n## %s: %s\n\n%s%s%s", s, result[s], markdown ? "" : "```\n", text[s], markdown ? "" : "```\n"
      }
    }' "$journal"
}

date_of_journal() {
  began=$(awk '$1 == "@run" { print $2; exit }' "$journal")
  date -d "@$began" +%F 2>/dev/null || date +%F
}

# Replaces the page as a whole.
write_report() {
  page=$report/gpu-$(date_of_journal)-$(commit_of_journal "$journal").md
  print_report >"$report/.page" && mv "$report/.page" "$page"
}

keep_report() {
  if ! awk '$1 == "@run" && $3 == "real" { real = 1 } END { exit !real }' "$journal"; then
    say "no GPU of this report is real: it stays at $page"
    return
  fi
  mkdir -p "$results"
  cp "$page" "$results/"
  fill_readme
  say "written to $results/$(basename "$page") and tests/gpu/README.md"
}

# One row per report and GPU; rows of other reports stay.
fill_readme() {
  link=../bench/results/$(basename "$page")
  count=$(steps | wc -l)
  rows=$(awk -v link="$link" -v count="$count" -v commit="$(commit_of_journal "$journal")" -v date="$(date_of_journal)" '
    $1 == "@run" { machine = $0; sub(/^@run [^ ]+ [^ ]+ [^ ]+ /, "", machine); real = $3 == "real" }
    $1 == "@end" && real { on[$2] = machine; result[$2] = $3; tests[$2] = $5 }
    END {
      for (s in on) {
        m = on[s]; machines[m] = 1; n[m, result[s]]++; passed[m] += tests[s]
        if (result[s] == "failed") failed[m] = failed[m] (failed[m] == "" ? "" : ", ") s
      }
      for (m in machines) printf "| %s | [%s, %s](%s) | %d | %s | %d | %d |\n", m, commit, date, link, n[m, "passed"] + 0,
        failed[m] == "" ? "none" : failed[m], n[m, "skipped"] + 0, passed[m]
    }' "$journal")
  awk -v rows="$rows" -v link="$link" '
    function head() { if (!told++) print "| GPU, driver | commit, report | steps passed | failed | skipped | tests passed |\n|---|---|---|---|---|---|" }
    /^<!-- gpu\.sh: begin/ { print; inside = 1; next }
    /^<!-- gpu\.sh: end/ { head(); print rows; inside = 0 }
    !inside { print; next }
    /^\| GPU, driver|^\|---/ { next }
    /^\| none yet/ { next }
    /^\|/ && !index($0, link) { head(); print }' "$root/tests/gpu/README.md" >"$report/.readme" && cat "$report/.readme" >"$root/tests/gpu/README.md"
  rm -f "$report/.readme"
}
