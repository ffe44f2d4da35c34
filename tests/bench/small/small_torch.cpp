// PyTorch's microseconds of the calls of small_calls.cpp, from C++. small.sh compiles it. Prints `NAME SECONDS` lines.

#include <torch/torch.h>

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tests/bench/small/median_seconds.h"

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  at::set_num_threads(1);
  using torch::Tensor;
  struct Case {
    const char* name;
    std::vector<std::int64_t> one, two;
    std::function<Tensor(const Tensor&, const Tensor&)> f;
  };
  const auto conv = [](const Tensor& a, const Tensor& b) { return torch::conv3d(a, b, {}, 1, 1); };
  for (const auto& c : {Case{"add", {16}, {16}, [](const Tensor&a, const Tensor&b) { return a + b; }},
                        Case{"matmul", {8, 8}, {8, 8}, [](const Tensor&a, const Tensor&b) { return torch::matmul(a, b); }},
                        Case{"conv", {1, 1, 4, 4, 4}, {1, 1, 3, 3, 3}, conv}}) {
    const auto a = torch::rand(c.one), b = torch::rand(c.two);
    const auto x = torch::rand(c.one).requires_grad_(), y = torch::rand(c.two).requires_grad_();
    {
      torch::NoGradGuard guard;
      std::printf("%s %.9f\n", c.name, median_seconds(rounds, [&] { c.f(a, b); }));
    }
    std::printf("%s_recorded %.9f\n", c.name, median_seconds(rounds, [&] { c.f(x, y); }));
    std::printf("%s_gradient %.9f\n", c.name, median_seconds(rounds, [&] { torch::autograd::grad({c.f(x, y).sum()}, {x, y}); }));
  }
}
