// What most tests include, precompiled. Not for helpers that programs without doctest link, too: every file that includes it has
// a reference to it.

#include <doctest/doctest.h>

#include "tests/support/precompiled.h"
