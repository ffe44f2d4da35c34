#pragma once
// Self-distillation with a centred teacher (Caron et al. 2021, DINO).

#include "models/losses/contrastive/batch.h"

namespace mpigrad::contrastive {

struct DinoAttributes {
  double student_temperature = 0.1, teacher_temperature = 0.04;
};

// student: scores [n, K] of every view of the same samples; teacher: scores of the first views, from a slowly moving copy of the
// network (update_momentum_encoder), without derivative; centre: [K], the same on all ranks. With
// q_a = softmax((teacher_a - centre) / T_t) and N samples on all ranks:
//
//   L = mean over teacher views a and other student views v of -1/N sum over i, k of q_a,ik log softmax(student_v / T_s)_ik
// Returns this rank's share, as in models/losses/contrastive/pairs.h.
Tensor dino(const Tensors& student, const Tensors& teacher, const Tensor& centre, const Communicator& comm,
            const DinoAttributes& attributes = {});

// momentum centre + (1 - momentum) mean of the teacher's scores over views and samples of all ranks: a constant [K]. Call it
// after the step that used `centre`, which begins as zeros. Collective, not recorded.
Tensor next_centre(const Tensor& centre, const Tensors& teacher, const Communicator& comm, double momentum = 0.9);

}  // namespace mpigrad::contrastive
