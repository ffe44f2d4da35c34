! Hand-written adjoints of the two subroutines of heat_code.f90. Names that end with `bar` are cotangents: derivatives of the energy with
! respect to the array.
module heat_adjoint
  use heat_code
  implicit none
contains

  ! The adjoint of update(): adds to ubar and kbar what nextbar contributes.
  subroutine update_adjoint(u, k, nextbar, ubar, kbar)
    real(8), intent(in) :: u(0:, 0:), k(:, :), nextbar(:, :)
    real(8), intent(inout) :: ubar(0:, 0:), kbar(:, :)
    real(8) :: w
    integer :: i, j
    do j = 1, size(nextbar, 2)
      do i = 1, size(nextbar, 1)
        w = dt * nextbar(i, j)
        kbar(i, j) = kbar(i, j) + w * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4 * u(i, j))
        w = w * k(i, j)
        ubar(i, j) = ubar(i, j) + nextbar(i, j) - 4 * w
        ubar(i - 1, j) = ubar(i - 1, j) + w
        ubar(i + 1, j) = ubar(i + 1, j) + w
        ubar(i, j - 1) = ubar(i, j - 1) + w
        ubar(i, j + 1) = ubar(i, j + 1) + w
      end do
    end do
  end subroutine

  ! The adjoint of exchange(): the ghost rows go back to their owners, where they are added.
  subroutine exchange_adjoint(ubar)
    real(8), intent(inout) :: ubar(0:nx + 1, 0:ny + 1)
    real(8) :: low(nx + 2), high(nx + 2)  ! from below and above
    integer :: below, above, n
    n = nx + 2
    below = merge(rank - 1, MPI_PROC_NULL, rank > 0)
    above = merge(rank + 1, MPI_PROC_NULL, rank + 1 < ranks)
    low = 0
    high = 0
    call MPI_Sendrecv(ubar(0, ny + 1), n, MPI_REAL8, above, 2, low, n, MPI_REAL8, below, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(ubar(0, 0), n, MPI_REAL8, below, 3, high, n, MPI_REAL8, above, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    ubar(:, 1) = ubar(:, 1) + low
    ubar(:, ny) = ubar(:, ny) + high
    ubar(:, 0) = 0
    ubar(:, ny + 1) = 0
  end subroutine
end module
