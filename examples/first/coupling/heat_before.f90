! The existing program: the energy after some steps of heat_code.f90. heat.f90 is the same program with gradients.
module heat_run
  use heat_code
  implicit none
contains

  ! This rank's part of the energy, the sum of u^2, after all steps.
  subroutine simulate(k, energy)
    real(8), intent(in) :: k(nx, ny)
    real(8), intent(out) :: energy
    real(8) :: u(0:nx + 1, 0:ny + 1), next(nx, ny)
    integer :: step
    u = 0
    u(1:nx, 1:ny) = start
    do step = 1, steps
      call exchange(u)
      call update(u, k, next)
      u(1:nx, 1:ny) = next
    end do
    energy = sum(u(1:nx, 1:ny)**2)
  end subroutine
end module

program heat
  use heat_run
  implicit none
  real(8) :: energy
  call initialise()
  call simulate(k, energy)
  call MPI_Allreduce(MPI_IN_PLACE, energy, 1, MPI_REAL8, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0) print '(a, f12.6)', 'energy ', energy
  call MPI_Finalize()
end program
