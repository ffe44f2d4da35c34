! update() of heat_code.f90 as an op: x(1) is k, x(2) is u with its ghost cells, y(1) is next, of the type of x(1).
module heat_ops
  use heat_adjoint
  use mpigrad
  implicit none
  type(mpigrad_comm) :: world
  type(mpigrad_halo) :: halo
  type(mpigrad_op) :: updated
  type(mpigrad_tensor) :: conductivity
contains

  subroutine make_ops()
    call mpigrad_comm_from_fortran(MPI_COMM_WORLD%mpi_val, world)
    call mpigrad_halo_create(world, [ranks, 1], [0, 0], [1, 1], [1, 1], halo)
    call mpigrad_op_create('update', 1, forward, adjoint, updated)
    call mpigrad_tensor_over(k, conductivity)
  end subroutine

  integer(c_int) function forward(user, inputs, x, outputs, y) bind(C)
    type(c_ptr), value :: user
    integer(c_int), value :: inputs, outputs
    type(mpigrad_tensor), intent(in) :: x(inputs)
    type(mpigrad_tensor), intent(inout) :: y(outputs)
    real(8), pointer :: k(:, :), u(:, :), next(:, :)
    call mpigrad_tensor_read(x(1), k)
    call mpigrad_tensor_read(x(2), u)
    call mpigrad_tensor_write(y(1), next)
    call update(u, k, next)
    forward = 0
  end function

  integer(c_int) function adjoint(user, inputs, x, outputs, ybar, xbar) bind(C)
    type(c_ptr), value :: user
    integer(c_int), value :: inputs, outputs
    type(mpigrad_tensor), intent(in) :: x(inputs), ybar(outputs)
    type(mpigrad_tensor), intent(inout) :: xbar(inputs)
    real(8), pointer :: k(:, :), u(:, :), nextbar(:, :), kbar(:, :), ubar(:, :)
    call mpigrad_tensor_read(x(1), k)
    call mpigrad_tensor_read(x(2), u)
    call mpigrad_tensor_read(ybar(1), nextbar)
    call mpigrad_tensor_write(xbar(1), kbar)
    call mpigrad_tensor_write(xbar(2), ubar)
    call update_adjoint(u, k, nextbar, ubar, kbar)
    adjoint = 0
  end function
end module
