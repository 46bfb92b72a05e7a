! Cannon's matrix product with SMPI in Fortran: cannon_smpi_f08 [order]
!
! Blocks of A and B change their owner and stay where they are; see cannon_smpi.c.
program cannon
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use smpi_f08
  implicit none
  integer :: n, q, m, ranks, rank, at(2), step, i
  integer :: to(2), from(2)
  type(MPI_Comm) :: grid
  type(c_ptr) :: blocks(2)
  real(8), pointer :: a(:, :), b(:, :)
  real(8), allocatable :: c(:, :)
  real(8) :: begin, before, communication, times(3), most(3), right, s
  character(32) :: text

  call MPI_Init()
  n = 512
  if (command_argument_count() > 0) then
    call get_command_argument(1, text)
    read (text, *) n
  end if
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  q = nint(sqrt(real(ranks)))
  if (q * q /= ranks .or. mod(n, q) /= 0) call MPI_Abort(MPI_COMM_WORLD, 2)
  m = n / q
  call MPI_Cart_create(MPI_COMM_WORLD, 2, [q, q], [.true., .true.], .false., grid)
  call SMPI_Comm_attach(grid)
  call MPI_Comm_rank(grid, rank)
  call MPI_Cart_coords(grid, rank, 2, at)
  call MPI_Cart_shift(grid, 1, -1, from(1), to(1))
  call MPI_Cart_shift(grid, 0, -1, from(2), to(2))

  do i = 1, 2
    call SMPI_Alloc(8_MPI_ADDRESS_KIND * m * m, blocks(i))
  end do
  call c_f_pointer(blocks(1), a, [m, m])
  call c_f_pointer(blocks(2), b, [m, m])
  do i = 1, m
    a(i, :) = (at(1) * m + i) * weight(mod(at(1) + at(2), q), m)
    b(:, i) = weight(mod(at(1) + at(2), q), m) * (at(2) * m + i)
  end do
  allocate (c(m, m), source=0d0)

  communication = 0
  call MPI_Barrier(grid)
  begin = MPI_Wtime()
  do step = 1, q
    c = c + matmul(a, b)
    if (step == q) exit
    before = MPI_Wtime()
    call shift(blocks)
    call c_f_pointer(blocks(1), a, [m, m])
    call c_f_pointer(blocks(2), b, [m, m])
    communication = communication + MPI_Wtime() - before
  end do
  times(1) = MPI_Wtime() - begin
  times(2) = communication

  s = 0
  do i = 0, q - 1
    s = s + sum(weight(i, m)**2)
  end do
  times(3) = 0
  do i = 1, m
    right = (at(1) * m + i) * s
    times(3) = max(times(3), maxval(abs(c(i, :) / [(right * (at(2) * m + step), step=1, m)] - 1)))
  end do
  call MPI_Allreduce(times, most, 3, MPI_DOUBLE_PRECISION, MPI_MAX, grid)
  if (rank == 0) then
    print '(a,i0,a,i0,a,f0.6,a,f0.6,a,es8.1,a,a)', "cannon_smpi_f08: order ", n, ", ", ranks, &
        " ranks, ", most(1), " s, of which communication ", most(2), " s, error ", most(3), ": ", &
        merge("right", "WRONG", most(3) < 1d-12)
  end if
  do i = 1, 2
    call SMPI_Free(blocks(i))
  end do
  call MPI_Comm_free(grid)
  call MPI_Finalize()
  if (most(3) >= 1d-12) error stop 1

contains

  ! The weights of block number `number`.
  function weight(number, count) result(w)
    integer, intent(in) :: number, count
    real(8) :: w(count)
    integer :: k
    w = [(1d0 / (1 + mod(number * count + k - 1, 7)), k=1, count)]
  end function

  ! Passes both blocks on and gets others.
  subroutine shift(passed)
    type(c_ptr), intent(inout) :: passed(2)
    type(MPI_Request) :: requests(4)
    type(SMPI_View) :: views(2)
    integer :: j
    do j = 1, 2
      call SMPI_Irecv(views(j), m * m, MPI_DOUBLE_PRECISION, from(j), j, grid, requests(j))
      call SMPI_Ipass(passed(j), m * m, MPI_DOUBLE_PRECISION, to(j), j, grid, requests(2 + j))
    end do
    call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
    do j = 1, 2
      call SMPI_View_own(views(j), passed(j))
    end do
  end subroutine

end program
