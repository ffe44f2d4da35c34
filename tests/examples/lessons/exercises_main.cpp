// build/tests/exercises NAME VARIANT judges one exercise: as the student gets it (stub), its solution, or a wrong one (wrong1,
// ...). Without arguments it lists them.

#include "judge.h"
#include "tests/examples/lessons/exercises.h"

namespace {
std::vector<Registered>& all() {
  static std::vector<Registered> list;
  return list;
}
}  // namespace

Registered::Registered(const char* name_, const char* variant_, const char* title_,
                       std::function<void(const mpigrad::Communicator&)> body_)
    : name(name_), variant(variant_), title(title_), body(std::move(body_)) {
  all().push_back(*this);
}

int main(int argc, char** argv) {
  if (argc == 3)
    for (const auto& each : all())
      if (each.name == argv[1] && each.variant == argv[2]) return judge::run(each.title, each.body);
  for (const auto& each : all()) fmt::print("{} {}\n", each.name, each.variant);
  return argc == 1 ? 0 : 2;
}
