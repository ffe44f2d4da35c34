! heat.f90 with the exchange of heat_code.f90 instead of the library's: a whole step, with its messages, is one op. Its hand-written
! adjoint sends the cotangents of the ghost rows back.
!
!   mpiexec -n 2 build/examples/heat_messages

! ---- a step as an op: x(1) and x(2) are u and k without ghost cells, y(1) is u after the step

module heat_ops
  use heat_adjoint
  use mpigrad
  implicit none
  type(mpigrad_comm) :: world
  type(mpigrad_op) :: stepped
  type(mpigrad_tensor) :: conductivity
contains

  subroutine make_ops()
    call mpigrad_comm_from_fortran(MPI_COMM_WORLD%mpi_val, world)
    call mpigrad_op_create('step', 1, forward, adjoint, stepped, communicates=.true.)
    call mpigrad_tensor_over(k, conductivity)
  end subroutine

  ! The array with ghost cells of the elements of x.
  subroutine load(x, u)
    type(mpigrad_tensor), intent(in) :: x
    real(8), intent(out) :: u(0:nx + 1, 0:ny + 1)
    u = 0
    call mpigrad_tensor_to(x, u(1:nx, 1:ny))
    call exchange(u)
  end subroutine

  integer(c_int) function forward(user, inputs, x, outputs, y) bind(C)
    type(c_ptr), value :: user
    integer(c_int), value :: inputs, outputs
    type(mpigrad_tensor), intent(in) :: x(inputs)
    type(mpigrad_tensor), intent(inout) :: y(outputs)
    real(8) :: u(0:nx + 1, 0:ny + 1)
    real(8), pointer :: k(:, :), next(:, :)
    call load(x(1), u)
    call mpigrad_tensor_read(x(2), k)
    call mpigrad_tensor_write(y(1), next)
    call update(u, k, next)
    forward = 0
  end function

  integer(c_int) function adjoint(user, inputs, x, outputs, ybar, xbar) bind(C)
    type(c_ptr), value :: user
    integer(c_int), value :: inputs, outputs
    type(mpigrad_tensor), intent(in) :: x(inputs), ybar(outputs)
    type(mpigrad_tensor), intent(inout) :: xbar(inputs)
    real(8) :: u(0:nx + 1, 0:ny + 1), ubar(0:nx + 1, 0:ny + 1)
    real(8), pointer :: k(:, :), nextbar(:, :), kbar(:, :), inner(:, :)
    call load(x(1), u)
    call mpigrad_tensor_read(x(2), k)
    call mpigrad_tensor_read(ybar(1), nextbar)
    call mpigrad_tensor_write(xbar(1), inner)
    call mpigrad_tensor_write(xbar(2), kbar)
    ubar = 0
    call update_adjoint(u, k, nextbar, ubar, kbar)
    call exchange_adjoint(ubar)
    inner = inner + ubar(1:nx, 1:ny)
    adjoint = 0
  end function
end module

! ---- the program

module heat_run
  use heat_ops
  implicit none
contains

  ! This rank's part of the energy, the sum of u^2, after all steps.
  subroutine simulate(k, energy)
    type(mpigrad_tensor), intent(in) :: k
    type(mpigrad_tensor), intent(inout) :: energy
    type(mpigrad_tensor) :: u(1)
    integer :: step
    call mpigrad_tensor_over(start, u(1))
    do step = 1, steps
      call mpigrad_op_call(stepped, [u(1), k], u)
    end do
    call mpigrad_dot(u(1), u(1), energy)
  end subroutine

  ! ---- for the check: simulate() as a function of k
  integer(c_int) function energy_of(user, inputs, x, outputs, y) bind(C)
    type(c_ptr), value :: user
    integer(c_int), value :: inputs, outputs
    type(mpigrad_tensor), intent(in) :: x(inputs)
    type(mpigrad_tensor), intent(inout) :: y(outputs)
    call simulate(x(1), y(1))
    energy_of = 0
  end function
end module

program heat
  use heat_run
  implicit none
  type(mpigrad_tape) :: tape
  type(mpigrad_tensor) :: part, gradient(1), squares
  real(8) :: energy, norm, rate
  call initialise()
  call make_ops()
  call mpigrad_tape_begin(tape)
  call simulate(conductivity, part)
  call mpigrad_tape_gradient(tape, [conductivity], gradient, part)
  call mpigrad_total(part, world, energy)
  call mpigrad_dot(gradient(1), gradient(1), squares)
  call mpigrad_total(squares, world, norm)
  if (rank == 0) print '(a, f12.6)', 'energy ', energy, 'gradient ', sqrt(norm)
  call mpigrad_taylor_test('heat', energy_of, [conductivity], 1, world, rate, second=.false.)
  if (rank == 0) print '(a, f5.2)', 'Taylor test: rate ', rate
  call mpigrad_destroy_all()
  call MPI_Finalize()
end program
