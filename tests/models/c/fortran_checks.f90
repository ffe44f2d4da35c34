! Checks of the tests in Fortran: they count, and print what fails.
module fortran_checks
  use mpi_f08
  use mpigrad
  implicit none
  integer :: made = 0, failed = 0, rank = 0, ranks = 1
  type(mpigrad_comm) :: world
contains

  subroutine check(what, condition)
    character(*), intent(in) :: what
    logical, intent(in) :: condition
    made = made + 1
    if (condition) return
    failed = failed + 1
    print '(4a)', 'failed: ', what, '; last error: ', mpigrad_last_error()
  end subroutine

  ! A call has this status, and its sentence contains the text.
  subroutine refused(what, status, expected, text)
    character(*), intent(in) :: what, text
    integer, intent(in) :: status, expected
    call check(what, status == expected .and. index(mpigrad_last_error(), text) > 0)
  end subroutine

  real(8) function item(x)
    type(mpigrad_tensor), intent(in) :: x
    call mpigrad_tensor_item(x, item)
  end function
end module
