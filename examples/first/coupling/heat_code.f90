! An existing code: an explicit heat equation with MPI, u' = u + dt k (sum of the four neighbours - 4 u), u = 0 outside. Each rank has
! ny rows of nx cells, in arrays with ghost cells around them.
module heat_code
  use mpi_f08
  implicit none
  integer, parameter :: nx = 20, rows = 24, steps = 12
  real(8), parameter :: dt = 0.2d0
  integer :: rank, ranks, ny
  real(8), allocatable, target :: start(:, :), k(:, :)
contains

  ! Fetches the ghost rows from the neighbours.
  subroutine exchange(u)
    real(8), intent(inout) :: u(0:nx + 1, 0:ny + 1)
    integer :: below, above, n
    n = nx + 2
    below = merge(rank - 1, MPI_PROC_NULL, rank > 0)
    above = merge(rank + 1, MPI_PROC_NULL, rank + 1 < ranks)
    call MPI_Sendrecv(u(0, 1), n, MPI_REAL8, below, 0, u(0, ny + 1), n, MPI_REAL8, above, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Sendrecv(u(0, ny), n, MPI_REAL8, above, 1, u(0, 0), n, MPI_REAL8, below, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  end subroutine

  ! One step without messages: next from u with its ghost cells.
  subroutine update(u, k, next)
    real(8), intent(in) :: u(0:, 0:), k(:, :)
    real(8), intent(out) :: next(:, :)
    integer :: i, j
    do j = 1, size(next, 2)
      do i = 1, size(next, 1)
        next(i, j) = u(i, j) + dt * k(i, j) * (u(i - 1, j) + u(i + 1, j) + u(i, j - 1) + u(i, j + 1) - 4 * u(i, j))
      end do
    end do
  end subroutine

  subroutine initialise()
    integer :: i, j
    call MPI_Init()
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks)
    if (mod(rows, ranks) /= 0) error stop 'the number of ranks must divide 24'
    ny = rows / ranks
    allocate (start(nx, ny), k(nx, ny))
    do concurrent (i = 1:nx, j = 1:ny)
      start(i, j) = sin(0.3d0 * i) * sin(0.25d0 * (rank * ny + j))
      k(i, j) = 0.5d0 + 0.3d0 * cos(0.4d0 * i + 0.2d0 * (rank * ny + j))
    end do
  end subroutine
end module
