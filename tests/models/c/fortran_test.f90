! The Fortran module: arrays, sections, derivatives, messages and refusals, on any number of ranks.
module fortran_parts
  use fortran_checks
  implicit none
contains

  subroutine test_arrays()
    integer, parameter :: nx = 4, ny = 3, nz = 2
    real(8), target :: a(nx, ny, nz), u(0:nx + 1, 0:ny + 1), back(nx, ny), seven(2, 1, 3, 1, 2, 1, 2), empty(2, 0, 3)
    real(4), target :: single(nx)
    integer(4), target :: i4(nx, ny)
    integer(8), target :: i8(nx, ny)
    complex(8), target :: z(nx, 2)
    complex(4), target :: z4(nx)
    real(8), pointer :: p(:, :, :), q(:, :), line(:)
    real(4), pointer :: p4(:)
    integer(4), pointer :: pi4(:, :)
    integer(8), pointer :: pi8(:, :)
    complex(8), pointer :: pz(:, :)
    type(mpigrad_tensor) :: x, y, list(1)
    integer(c_int64_t) :: shape(8), n
    integer :: i, j, l, status, dtype, rank_of
    do concurrent (i = 1:nx, j = 1:ny, l = 1:nz)
      a(i, j, l) = 100 * l + 10 * j + i
    end do
    ! a(nx, ny, nz) is [nz, ny, nx], in the same memory.
    call mpigrad_tensor_over(a, x)
    call mpigrad_tensor_rank(x, rank_of)
    call mpigrad_tensor_shape(x, shape)
    call mpigrad_tensor_dtype(x, dtype)
    call check('the shape is reversed', rank_of == 3 .and. all(shape(:3) == [nz, ny, nx]) .and. dtype == mpigrad_float64)
    call mpigrad_tensor_read(x, p)
    call check('the memory is that of the array', associated(p, a))
    a(1, 1, 1) = -1
    call check('a write to the array arrives', p(1, 1, 1) == -1)
    call mpigrad_tensor_write(x, p)
    p(2, 1, 1) = -2
    call check('a write to the tensor arrives', a(2, 1, 1) == -2)
    call mpigrad_slice(x, [1, 0, 0], [2, ny, nx], y)
    call mpigrad_tensor_read(y, p)
    call check('dimension 0 of the tensor is the last one of the array', all(p(:, :, 1) == a(:, :, 2)))
    call mpigrad_tensor_elements(y, n)
    call check('elements', n == nx * ny)
    ! Sections.
    do concurrent (i = 0:nx + 1, j = 0:ny + 1)
      u(i, j) = 10 * j + i
    end do
    call mpigrad_tensor_from(u(1:nx, 1:ny), x)
    call mpigrad_tensor_read(x, q)
    call check('the interior is copied', all(q == u(1:nx, 1:ny)))
    call mpigrad_tensor_from(u(nx:1:-2, ny:1:-1), y)
    call mpigrad_tensor_read(y, q)
    call check('strides run backwards', all(q == u(nx:1:-2, ny:1:-1)))
    call mpigrad_tensor_from(u(2, :), y)
    call mpigrad_tensor_read(y, line)
    call check('a row is copied', all(line == u(2, :)))
    call mpigrad_affine(x, 1d0, 1000d0, y)
    call mpigrad_tensor_to(y, u(1:nx, 1:ny))
    call check('the interior is written', all([(u(i, 1) == 1010 + i, i=1, nx)]) .and. u(0, 1) == 10 .and. u(1, 0) == 1)
    call mpigrad_tensor_to(x, back)
    call check('an array is written', back(nx, ny) == 10 * ny + nx)
    ! All types, seven dimensions, no elements.
    seven = 3
    call mpigrad_tensor_over(seven, x)
    call mpigrad_tensor_shape(x, shape)
    call check('seven dimensions', all(shape(:7) == [2, 1, 2, 1, 3, 1, 2]))
    call mpigrad_sum_all(x, y)
    call check('seven dimensions: sum', item(y) == 72)
    call mpigrad_tensor_from(empty, x)
    call mpigrad_tensor_elements(x, n)
    call check('no elements', n == 0)
    call mpigrad_tensor_to(x, empty, status)
    call check('no elements are written', status == mpigrad_ok)
    single = 1
    i4 = 2
    i8 = 3
    z = (1d0, 2d0)
    z4 = (3.0, 4.0)
    call mpigrad_tensor_over(single, x)
    call mpigrad_tensor_read(x, p4)
    call check('real(4)', all(p4 == 1))
    call mpigrad_tensor_over(i4, x)
    call mpigrad_tensor_read(x, pi4)
    call check('integer(4)', all(pi4 == 2))
    call mpigrad_tensor_over(i8, x)
    call mpigrad_tensor_read(x, pi8)
    call check('integer(8)', all(pi8 == 3))
    call mpigrad_tensor_over(z, x)
    call mpigrad_tensor_read(x, pz)
    call check('complex(8)', all(pz == (1d0, 2d0)))
    call mpigrad_imag(x, y)
    call mpigrad_sum_all(y, x)
    call check('complex(8): imaginary parts', item(x) == 4 * nx)
    call mpigrad_tensor_from(z4(::2), x)
    call mpigrad_abs(x, y)
    call mpigrad_sum_all(y, x)
    call check('complex(4)', abs(item(x) - 5 * nx / 2) < 1e-5)
    ! Refusals.
    call mpigrad_tensor_over(u(1:nx, 1:ny), x, status)
    call refused('a section has no tensor over it', status, mpigrad_invalid_argument, 'the array is not contiguous')
    call mpigrad_tensor_over(a, x)
    call mpigrad_tensor_read(x, q, status)
    call refused('a pointer of another rank', status, mpigrad_invalid_argument, 'another number of dimensions')
    call check('which is null then', .not. associated(q))
    call mpigrad_tensor_from(u, y)
    call mpigrad_tensor_read(y, pi4, status)
    call refused('a pointer of another type', status, mpigrad_invalid_argument, 'elements of int32, but x is float64')
    call mpigrad_tensor_to(y, back, status)
    call refused('an array of other extents', status, mpigrad_invalid_argument, 'has the shape [3, 4], but x is float64 [5, 6]')
    call mpigrad_tensor_over_constant(a, x)
    call mpigrad_tensor_write(x, p, status)
    call refused('a constant array', status, mpigrad_error, 'read-only')
    call mpigrad_tape_vjp(mpigrad_tape(), [x, x], [x], [x], list, status=status)
    call refused('lists of different lengths', status, mpigrad_invalid_argument, 'y and ybar have different lengths')
    call mpigrad_exp(mpigrad_tensor(), y, status)
    call refused('a null handle', status, mpigrad_invalid_handle, 'null handle')
  end subroutine

  ! ---- functions of the program

  integer(c_int) function several(user, inputs, x, outputs, y) bind(C)
    type(c_ptr), value :: user
    integer(c_int), value :: inputs, outputs
    type(mpigrad_tensor), intent(in) :: x(inputs)
    type(mpigrad_tensor), intent(inout) :: y(outputs)
    type(mpigrad_tensor) :: a, b
    type(mpigrad_request) :: r
    integer, pointer :: calls
    call c_f_pointer(user, calls)
    calls = calls + 1
    several = 1
    if (inputs /= 2 .or. outputs /= 4) return
    y(1) = (2d0 - x(1) * x(2)) / (x(2) + 1d0) - (-x(1)) * 3d0 + 1d0 / x(2) - x(1) / 2d0
    call mpigrad_allreduce(x(1), world, y(2))
    call mpigrad_isend(x(1), world, mod(rank + 1, ranks), r)
    call mpigrad_recv(mpigrad_float64, [3, 5], world, mod(rank + ranks - 1, ranks), a)
    call mpigrad_wait(r, b)
    call mpigrad_sum(a, [1], b, keep=.true.)
    call mpigrad_conv(reshaped(x(1), [1, 1, 3, 5, 1]), reshaped(x(2), [1, 1, 3, 5, 1]), y(3), padding=[0, 1, 2])
    call mpigrad_matmul(a, x(2), y(4), transpose_b=.true.)
    several = 0
  end function

  function reshaped(x, shape) result(y)
    type(mpigrad_tensor), intent(in) :: x
    integer, intent(in) :: shape(:)
    type(mpigrad_tensor) :: y
    call mpigrad_reshape(x, shape, y)
  end function

  integer(c_int) function halved(user, step, tensors, state, next) bind(C)
    type(c_ptr), value :: user
    integer(c_int64_t), value :: step
    integer(c_int), value :: tensors
    type(mpigrad_tensor), intent(in) :: state(tensors)
    type(mpigrad_tensor), intent(inout) :: next(tensors)
    next(1) = state(1) * 0.5d0 + real(step, 8)
    halved = 0
  end function

  integer(c_int) function three_times(user, inputs, x, outputs, y) bind(C)
    type(c_ptr), value :: user
    integer(c_int), value :: inputs, outputs
    type(mpigrad_tensor), intent(in) :: x(inputs)
    type(mpigrad_tensor), intent(inout) :: y(outputs)
    y(1) = x(1) * 3d0
    three_times = 0
  end function

  integer(c_int) function fails(user, inputs, x, outputs, y) bind(C)
    type(c_ptr), value :: user
    integer(c_int), value :: inputs, outputs
    type(mpigrad_tensor), intent(in) :: x(inputs)
    type(mpigrad_tensor), intent(inout) :: y(outputs)
    fails = mpigrad_fail(mpigrad_error, 'the density is negative')
  end function

  subroutine test_functions()
    real(8), target :: a(5, 3), b(5, 3)
    integer, target :: calls
    type(mpigrad_tensor) :: x(2), y(1), loss, gradient(1)
    type(mpigrad_tape) :: tape
    real(8) :: error, rate
    integer :: status, i
    call random_number(a)
    a = a + 0.1d0 * rank
    do i = 1, 15
      b(1 + mod(i, 5), 1 + mod(i, 3)) = 1 + 0.1d0 * i
    end do
    calls = 0
    call mpigrad_tensor_over(a, x(1))
    call mpigrad_tensor_over(b, x(2))
    call mpigrad_adjoint_check('several', several, x, 4, world, error, user=c_loc(calls))
    call mpigrad_taylor_test('several', several, x, 4, world, rate, user=c_loc(calls))
    call check('the user pointer arrives', calls > 20 .and. error < 1e-7)
    call mpigrad_untaped(fails, x, y, status=status)
    call refused('a function fails', status, mpigrad_callback_failed, 'the density is negative')
    ! x -> x / 2 + step, for steps 0, 1, 2: x / 8 + 0 + 0.5 + 2
    call mpigrad_tape_begin(tape)
    call mpigrad_time_steps(halved, x(1:1), 3, y, snapshots=1)
    call mpigrad_sum_all(y(1), loss)
    call mpigrad_tape_gradient(tape, x(1:1), gradient, objective=loss)
    call mpigrad_tape_destroy(tape)
    call check('time_steps', abs(item(loss) - (sum(a) / 8 + 15 * 2.5d0)) < 1e-12)
    call mpigrad_sum_all(gradient(1), loss)
    call check('the gradient of time_steps', abs(item(loss) - 15d0 / 8) < 1e-14)
    call mpigrad_solve(three_times, x(1), y(1), iterations=10)
    call mpigrad_sum_all(y(1), loss)
    call check('solve', abs(item(loss) - sum(a) / 3) < 1e-9)
  end subroutine

  ! ---- messages, optimizers

  subroutine test_messages()
    real(8), target :: mine(2), weights(3)
    real(8), pointer :: p(:)
    type(mpigrad_tensor) :: x, y, parameters(1), gradients(1)
    type(mpigrad_comm) :: part
    type(mpigrad_optimizer) :: optimizer
    integer(c_int64_t) :: before, after
    type(mpigrad_scope) :: scope
    real(8) :: total
    integer :: size_of_part, i
    mine = [real(8) :: rank, 10 * rank]
    call mpigrad_tensor_over(mine, x)
    call mpigrad_allreduce(x, world, y, op=mpigrad_reduce_max)
    call mpigrad_tensor_read(y, p)
    call check('allreduce', all(p == [ranks - 1, 10 * (ranks - 1)]))
    call mpigrad_allgather(x, world, y)
    call mpigrad_tensor_read(y, p)
    call check('allgather', size(p) == 2 * ranks .and. all(p(1::2) == [(i, i=0, ranks - 1)]))
    call mpigrad_bcast(x, world, y, root=ranks - 1)
    call mpigrad_tensor_read(y, p)
    call check('bcast', p(2) == 10 * (ranks - 1))
    call mpigrad_reduce_scatter(y, world, [(merge(2, 0, i == 1), i=1, ranks)], x)
    call mpigrad_tensor_read(x, p)
    call check('reduce_scatter', size(p) == merge(2, 0, rank == 0))
    call mpigrad_sum_all(y, x)
    call mpigrad_total(x, world, total)
    call check('total', total == 11 * (ranks - 1) * ranks)
    call mpigrad_comm_split(world, rank, 0, part)
    call mpigrad_comm_size(part, size_of_part)
    call check('split', size_of_part == 1)
    call mpigrad_barrier(world)
    ! A step of an optimizer changes the array of the program.
    weights = 1
    call mpigrad_live_handles(before)
    call mpigrad_scope_begin(scope)
    call mpigrad_tensor_over(weights, parameters(1))
    call mpigrad_optimizer_create('sgd', parameters, 0.5d0, optimizer)
    call mpigrad_tensor_full(mpigrad_float64, [3_c_int64_t], 1d0, gradients(1))
    call mpigrad_optimizer_step(optimizer, gradients)
    call mpigrad_scope_end(scope)
    call mpigrad_live_handles(after)
    call check('an optimizer changes the array', all(weights == 0.5d0))
    call check('a scope destroys its handles', before == after)
  end subroutine
end module

program fortran_test
  use fortran_networks
  use fortran_parts
  implicit none
  integer :: status
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call check('no error at first', len(mpigrad_last_error()) == 0)
  call mpigrad_comm_from_fortran(MPI_COMM_NULL%mpi_val, world, status)
  call refused('no communicator', status, mpigrad_error, 'MPI_COMM_NULL')
  call mpigrad_comm_from_fortran(MPI_COMM_WORLD%mpi_val, world)
  call test_arrays()
  call test_functions()
  call test_messages()
  call test_cartesian()
  call test_networks()
  call mpigrad_destroy_all()
  call MPI_Finalize()
  if (rank == 0 .or. failed > 0) print '(i0, a, i0, a)', made - failed, ' passed, ', failed, ' failed, 0 skipped'
  if (failed > 0) error stop 1
end program
