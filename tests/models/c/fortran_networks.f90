! The Fortran module: Cartesian communicators, networks from files of weights, checkpoints.
module fortran_networks
  use fortran_checks
  implicit none
contains

  ! a(nx, ny, nz) over MPI's grid [px, py, pz]
  subroutine test_cartesian()
    type(MPI_Comm) :: cart
    type(mpigrad_comm) :: c
    type(mpigrad_halo) :: halo
    type(mpigrad_tensor) :: x, ghosted
    integer :: dims(3), at(3), d, i, j, status
    real(8), target :: a(3, 2, 1)
    real(8), pointer :: p(:, :, :)
    logical :: right
    dims = [0, 0, 1]
    call MPI_Dims_create(ranks, 3, dims)
    call MPI_Cart_create(MPI_COMM_WORLD, 3, dims, [(.false., d=1, 3)], .false., cart)
    call MPI_Cart_coords(cart, rank, 3, at)
    do concurrent (i = 1:3, j = 1:2)
      a(i, j, 1) = 100 * (2 * at(2) + j) + 3 * at(1) + i
    end do
    call mpigrad_tensor_over(a, x)
    if (count(dims > 1) > 1) then
      call mpigrad_comm_from_fortran(cart%mpi_val, c)
      call mpigrad_halo_create(c, dims(3:1:-1), [0, 0, 0], [0, 1, 1], [0, 1, 1], halo, status)
      call refused('a Cartesian communicator', status, mpigrad_error, 'mpigrad_comm_from_cartesian()')
    end if
    call mpigrad_comm_from_cartesian(cart%mpi_val, c)
    call mpigrad_halo_create(c, dims(3:1:-1), [0, 0, 0], [0, 1, 1], [0, 1, 1], halo)
    call mpigrad_halo_exchange(halo, x, ghosted)
    call mpigrad_tensor_read(ghosted, p)
    right = all(shape(p) == [5, 4, 1])
    do i = 0, 4
      do j = 0, 3
        d = 100 * (2 * at(2) + j) + 3 * at(1) + i
        if (3 * at(1) + i < 1 .or. 3 * at(1) + i > 3 * dims(1)) d = 0
        if (2 * at(2) + j < 1 .or. 2 * at(2) + j > 2 * dims(2)) d = 0
        right = right .and. p(i + 1, j + 1, 1) == d
      end do
    end do
    call check('ghost cells on a Cartesian grid', right)
    call MPI_Comm_free(cart)
  end subroutine

  ! The planes of a(channel, x, y, z, sample) over the ranks. The arguments of the program: a folder to write to, and that of the sources.
  subroutine test_networks()
    integer, parameter :: n = 16
    character(1000) :: source, path
    character(:), allocatable :: name
    type(mpigrad_comm) :: self
    type(mpigrad_network) :: whole, net
    type(mpigrad_optimizer) :: adam
    type(mpigrad_tensor) :: x, y, target, tensors(2)
    integer(c_int64_t) :: extents(5)
    integer :: parameters, step, first, last, i
    real(4), target :: a(1, n, n, n, 1), wanted(4)
    integer(8), target :: labels(n, n, n, 1)
    real(4), pointer :: one(:, :, :, :, :), mine(:, :, :, :, :)
    real(8) :: before, after
    if (command_argument_count() < 2) return
    call get_command_argument(2, source)
    source = trim(source) // '/examples/trainers/unet3d/hippocampus.h5'
    call get_command_argument(1, path)
    write (path, '(2a, i0, a)') trim(path), '/fortran_checkpoint_', ranks, '.h5'
    a = reshape([(real(mod(7 * i, 13)), i=1, size(a))], shape(a)) / 13
    call mpigrad_comm_self(self)
    call mpigrad_network_from_weights(source, self, whole)
    call mpigrad_network_from_weights(source, world, net, depth=ranks)
    first = n * rank / ranks + 1
    last = n * (rank + 1) / ranks
    call mpigrad_tensor_from(a, x)
    call mpigrad_network_predict(whole, x, y)
    call mpigrad_tensor_read(y, one)
    call mpigrad_tensor_from(a(:, :, :, first:last, :), x)
    call mpigrad_network_predict(net, x, y)
    call mpigrad_tensor_read(y, mine)
    call check('the shape of predictions', all(shape(mine) == [3, n, n, last - first + 1, 1]))
    call check('predictions', maxval(abs(one(:, :, :, first:last, :) - mine)) < 1e-3 .and. maxval(mine) - minval(mine) > 1)
    call mpigrad_network_input(net, extents)
    call mpigrad_network_parameters(net, parameters)
    call mpigrad_network_parameter_name(net, 0, name)
    call check('names', index(name, '.weight') > 0 .and. parameters > 30 .and. all(extents == [1, 40, 56, 40, 1]))
    labels = 1
    call mpigrad_tensor_from(labels(:, :, first:last, :), target)
    call mpigrad_network_optimizer('adam', net, 1d-3, adam)
    call mpigrad_network_train_step(net, adam, 'cross_entropy', x, target, before)
    call mpigrad_network_write(net, path, o=adam, step=1)
    call mpigrad_network_train_step(net, adam, 'cross_entropy', x, target, after)
    call check('a step', after < before)
    call mpigrad_network_read(net, path, step, o=adam)
    call mpigrad_network_train_step(net, adam, 'cross_entropy', x, target, before)
    call check('a checkpoint', abs(after - before) < 1e-5 * before .and. step == 1)
    ! Tensors by name.
    wanted = 0.5
    call mpigrad_tensor_from(a, tensors(1))
    call mpigrad_tensor_over(wanted, tensors(2))
    call mpigrad_checkpoint_write(path, world, [character(6) :: 'a', 'wanted'], tensors, step=3)
    wanted = 0
    call mpigrad_checkpoint_read(path, [character(6) :: 'a', 'wanted'], tensors, step)
    call check('tensors', step == 3 .and. all(wanted == 0.5))
    call mpigrad_barrier(world)
    if (rank == 0) then
      open (newunit=i, file=path)
      close (i, status='delete')
    end if
  end subroutine
end module
