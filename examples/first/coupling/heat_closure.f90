! heat.f90 with a network as closure: the conductivity is an unknown function of u, k = c(u). The network learns it from the state after
! all steps: its gradients come through the steps of heat_code.f90 and the messages between them.
!
!   mpiexec -n 2 build/examples/heat_closure

module heat_closure
  use heat_ops
  implicit none
  integer, parameter :: hidden = 8, epochs = 100
contains

  ! The closure: one hidden layer for each cell, between 0 and 1. p: weights and biases of both layers.
  function closure(u, p) result(c)
    type(mpigrad_tensor), intent(in) :: u, p(4)
    type(mpigrad_tensor) :: c, cells, layer
    call mpigrad_reshape(u, [nx * ny, 1], cells)
    call mpigrad_matmul(cells, p(1), layer)
    call mpigrad_tanh(layer + p(2), layer)
    call mpigrad_matmul(layer, p(3), layer)
    call mpigrad_sigmoid(layer + p(4), layer)
    call mpigrad_reshape(layer, [ny, nx], c)
  end function

  ! The true law, which the network does not know.
  function law(u) result(c)
    type(mpigrad_tensor), intent(in) :: u
    type(mpigrad_tensor) :: c
    c = 0.2d0 + 0.6d0 * (u * u)
  end function

  ! The state after all steps, with the closure p or, without it, with the law.
  function simulate(p) result(last)
    type(mpigrad_tensor), intent(in), optional :: p(4)
    type(mpigrad_tensor) :: u(1), last, ghosted, c
    integer :: step
    call mpigrad_tensor_over(start, u(1))
    do step = 1, steps
      if (present(p)) then
        c = closure(u(1), p)
      else
        c = law(u(1))
      end if
      call mpigrad_halo_exchange(halo, u(1), ghosted)
      call mpigrad_op_call(updated, [c, ghosted], u)
    end do
    last = u(1)
  end function
end module

program heat
  use heat_closure
  implicit none
  type(mpigrad_optimizer) :: optimizer
  type(mpigrad_scope) :: step
  type(mpigrad_tape) :: tape
  type(mpigrad_tensor) :: initial(4), p(4), used(4), gradient(4), target, error, loss, u, c
  real(8) :: value, worst
  real(8) :: probe(nx, 24)
  real(8), pointer :: learned(:, :)
  integer :: epoch, i, j
  call initialise()
  call make_ops()
  target = simulate()

  ! Equal on all ranks, because the seeds are.
  call mpigrad_tensor_normal(mpigrad_float64, [1, hidden], 1, 0d0, 1d0, initial(1))
  call mpigrad_tensor_normal(mpigrad_float64, [hidden], 2, 0d0, 1d0, initial(2))
  call mpigrad_tensor_normal(mpigrad_float64, [hidden, 1], 3, 0d0, 0.3d0, initial(3))
  call mpigrad_tensor_full(mpigrad_float64, [1], 0d0, initial(4))
  call mpigrad_optimizer_create('adam', initial, 0.08d0, optimizer)
  do epoch = 1, epochs
    call mpigrad_scope_begin(step)
    do i = 1, 4
      call mpigrad_optimizer_parameter(optimizer, i - 1, p(i))
    end do
    call mpigrad_tape_begin(tape)
    do i = 1, 4
      call mpigrad_replicate(p(i), world, used(i))
    end do
    error = simulate(used) - target
    call mpigrad_dot(error, error, loss)
    call mpigrad_tape_gradient(tape, p, gradient, loss)
    call mpigrad_optimizer_step(optimizer, gradient)
    call mpigrad_total(loss, world, value)
    if (rank == 0 .and. (epoch == 1 .or. mod(epoch, 50) == 0)) print '(a, i4, a, es9.2)', 'epoch ', epoch, ' loss ', value
    call mpigrad_scope_end(step)
  end do

  ! The closure for values of u between -0.8 and 0.8, which occur in the simulation.
  do concurrent (i = 1:nx, j = 1:ny)
    probe(i, j) = -0.8d0 + 1.6d0 * (i - 1) / (nx - 1)
  end do
  do i = 1, 4
    call mpigrad_optimizer_parameter(optimizer, i - 1, p(i))
  end do
  call mpigrad_tensor_from(probe(:, 1:ny), u)
  c = closure(u, p)
  call mpigrad_tensor_read(c, learned)
  worst = maxval(abs(learned - (0.2d0 + 0.6d0 * probe(:, 1:ny)**2)))
  if (rank == 0) print '(a, f6.3)', 'the learned conductivity is off by at most ', worst
  call mpigrad_destroy_all()
  call MPI_Finalize()
end program
