// Precompiled header of tests. Not for helpers of programs without doctest: every file that includes it refers to doctest's
// symbols.

#include <doctest/doctest.h>

#include "tests/support/precompiled.h"
