#include "models/losses/contrastive/dino.h"

#include "ops/elementwise/elementwise.h"
#include "ops/reduce/reduce.h"
#include "ops/softmax/softmax.h"

namespace mpigrad::contrastive {

Tensor dino(const Tensors& student, const Tensors& teacher, const Tensor& centre, const Communicator& comm,
            const DinoAttributes& at) {
  require(!teacher.empty() && teacher.size() <= student.size() && student.size() > 1,
          "[dino] the first of at least two student views have teacher views: {} and {}", student.size(), teacher.size());
  require(at.teacher_temperature > 0, "[dino] the teacher's temperature is positive, got {}", at.teacher_temperature);
  Tensors views = student;
  views.insert(views.end(), teacher.begin(), teacher.end());
  const auto batch = inspect("dino", views, comm, {.smallest = 1, .refuse_zeros = false, .temperature = at.student_temperature});
  require(centre.shape() == Shape{batch.width}, "[dino] the centre is {}, scores have width {}", centre, batch.width);
  const auto views_of_student = static_cast<std::ptrdiff_t>(student.size());
  Tensors targets;
  {
    Untaped scope;
    for (auto t = batch.views.begin() + views_of_student; t != batch.views.end(); ++t)
      targets.push_back(constant(softmax((*t - cast(centre, t->dtype())) * (1 / at.teacher_temperature))));
  }
  Tensor sums;
  for (std::size_t v = 0; v < student.size(); ++v) {
    const auto scores = log_softmax(batch.views[v] * (1 / at.student_temperature));
    for (std::size_t a = 0; a < targets.size(); ++a) {
      if (a == v) continue;
      const auto pair = sum(targets[a] * scores);
      sums = sums ? sums + pair : pair;
    }
  }
  const auto pairs = static_cast<double>(targets.size() * (student.size() - 1));
  return batch.share(sums * (-1 / (pairs * static_cast<double>(batch.all))));
}

Tensor next_centre(const Tensor& centre, const Tensors& teacher, const Communicator& comm, double momentum) {
  require(momentum >= 0 && momentum <= 1, "[dino] the centre's momentum is in [0, 1], got {}", momentum);
  Untaped scope;
  const auto batch = inspect("dino", teacher, comm, {.smallest = 1, .refuse_zeros = false});
  require(centre.shape() == Shape{batch.width}, "[dino] the centre is {}, scores have width {}", centre, batch.width);
  Tensor sums;
  for (const auto& t : batch.views) sums = sums ? sums + sum(t, {0}) : sum(t, {0});
  const auto mean =
      allreduce(sums, batch.comm) * (1 / static_cast<double>(batch.all * static_cast<std::int64_t>(teacher.size())));
  return constant(centre * momentum + cast(mean, centre.dtype()) * (1 - momentum));
}

}  // namespace mpigrad::contrastive
