# Sections of tests/bench/results/platforms.md, each made by the script that it names. Scripts source this file.
#
#   write_section TITLE   replaces the section of this title, or adds it: the text on standard input
#
# POSIX sh; needs $root.

# shellcheck shell=sh disable=SC2154
write_section() {
  platforms=$root/tests/bench/results/platforms.md
  [ -f "$platforms" ] || printf '# Platforms\n\nThe script that a section names has made it; "Shown elsewhere, and not shown" is written by hand.\n' >"$platforms"
  { printf '## %s\n\n' "$1" && cat; } >"$platforms.section"
  awk -v title="## $1" '
    FNR == NR { text = text $0 "\n"; next }
    /^## / { skipped = $0 == title; if (skipped) { printf "%s", text; text = "" } else if (blank) print ""; blank = 0 }
    !skipped { print }
    skipped && /^$/ { blank = 1 }
    END { if (text) printf "\n%s", text }' "$platforms.section" "$platforms" >"$platforms.new" && mv "$platforms.new" "$platforms"
  rm -f "$platforms.section"
}
