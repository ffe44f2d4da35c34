! heat_before.f90 with the gradient of the energy with respect to the conductivity k of each cell: the library exchanges the ghost cells,
! and update() is an op with a hand-written adjoint (heat_op.f90).
!
!   mpiexec -n 2 build/examples/heat_fortran
!
! prints the energy and the rate of the Taylor test, which must be 2. ../existing_code.md explains it.

! ---- the program

module heat_run
  use heat_ops
  implicit none
contains

  ! This rank's part of the energy, the sum of u^2, after all steps.
  subroutine simulate(k, energy)
    type(mpigrad_tensor), intent(in) :: k
    type(mpigrad_tensor), intent(inout) :: energy
    type(mpigrad_tensor) :: u(1), ghosted
    integer :: step
    call mpigrad_tensor_over(start, u(1))
    do step = 1, steps
      call mpigrad_halo_exchange(halo, u(1), ghosted)
      call mpigrad_op_call(updated, [k, ghosted], u)
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
  ! ---- end
end module

program heat
  use heat_run
  implicit none
  type(mpigrad_tape) :: tape
  type(mpigrad_tensor) :: part, gradient(1)
  real(8) :: energy
  call initialise()
  call make_ops()
  call mpigrad_tape_begin(tape)
  call simulate(conductivity, part)
  call mpigrad_tape_gradient(tape, [conductivity], gradient, part)
  call mpigrad_total(part, world, energy)
  if (rank == 0) print '(a, f12.6)', 'energy ', energy
  ! ---- for the check
  block
    type(mpigrad_tensor) :: squares
    real(8) :: norm, rate
    call mpigrad_dot(gradient(1), gradient(1), squares)
    call mpigrad_total(squares, world, norm)
    if (rank == 0) print '(a, f12.6)', 'gradient ', sqrt(norm)
    call mpigrad_taylor_test('heat', energy_of, [conductivity], 1, world, rate, second=.false.)
    if (rank == 0) print '(a, f5.2)', 'Taylor test: rate ', rate
    call mpigrad_destroy_all()
  end block
  ! ---- end
  call MPI_Finalize()
end program
