! Fortran 2008 bindings: typed handles, statuses, asynchronous non-blocking operations, assumed-shape
! and sliced arrays, allocatables, optional error codes, matched probes, persistent requests,
! inter-communicators.
program usempif08
  use mpi_f08
  implicit none
  integer, parameter :: n = 20000
  type(MPI_Status) :: status, statuses(4)
  type(MPI_Request) :: requests(4), request
  type(MPI_Message) :: message
  type(MPI_Comm) :: comm, half, inter
  type(MPI_Datatype) :: column
  integer :: rank, size, peer, i, failures, total, count, index, round, outcount, indices(4), ierr
  real(kind=8), allocatable, asynchronous :: out(:), in(:)
  integer, asynchronous :: matrix(40, 50), received(50), gathered(40, 50)
  logical :: flag

  failures = 0
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  peer = ieor(rank, 1)
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  allocate(out(4 * n), in(4 * n))

  do round = 1, 6
    out = (/ (rank * 1.0d6 + i + round, i = 1, 4 * n) /)
    in = 0
    do i = 1, 2
      call MPI_Irecv(in((i - 1) * 2 * n + 1), 2 * n, MPI_REAL8, peer, i, comm, requests(i))
      call MPI_Isend(out((i - 1) * 2 * n + 1), 2 * n, MPI_REAL8, peer, i, comm, requests(2 + i))
    end do
    select case (round)
    case (1)
      call MPI_Waitall(4, requests, statuses)
      call check(statuses(1)%MPI_TAG == 1 .and. statuses(2)%MPI_SOURCE == peer, 1)
      call MPI_Get_count(statuses(2), MPI_REAL8, count)
      call check(count == 2 * n, 2)
    case (2)
      call MPI_Waitall(4, requests, MPI_STATUSES_IGNORE)
    case (3)
      do i = 1, 4
        call MPI_Waitany(4, requests, index, status)
        ! MPICH 4.0 itself counts from 0 here
        call check(index >= 0 .and. index <= 4, 3)
      end do
    case (4)
      total = 0
      do while (total < 4)
        call MPI_Waitsome(4, requests, outcount, indices, statuses)
        total = total + outcount
      end do
    case (5)
      flag = .false.
      do while (.not. flag)
        call MPI_Testall(4, requests, flag, statuses, ierr)
        call check(ierr == MPI_SUCCESS, 4)
      end do
    case default
      do i = 1, 4
        flag = .false.
        do while (.not. flag)
          call MPI_Test(requests(i), flag, MPI_STATUS_IGNORE)
        end do
      end do
    end select
    do i = 1, 4
      call check(requests(i) == MPI_REQUEST_NULL, 5)
    end do
    call check(all(in == (/ (peer * 1.0d6 + i + round, i = 1, 4 * n) /)), 6)
  end do

  call assumed(out(1:n), in(1:n))

  ! columns with a gap
  call MPI_Type_vector(50, 1, 40, MPI_INTEGER, column)
  call MPI_Type_commit(column)
  do i = 1, 50
    matrix(:, i) = rank * 1000 + i
  end do
  call MPI_Sendrecv(matrix(3, 1), 1, column, peer, 21, received, 50, MPI_INTEGER, peer, 21, comm, status)
  call check(all(received == (/ (peer * 1000 + i, i = 1, 50) /)), 7)
  call MPI_Type_free(column)

  ! matched probe
  call MPI_Issend(matrix, 2000, MPI_INTEGER, peer, 22, comm, request)
  call MPI_Mprobe(peer, MPI_ANY_TAG, comm, message, status)
  call check(status%MPI_TAG == 22, 8)
  call MPI_Mrecv(gathered, 2000, MPI_INTEGER, message, MPI_STATUS_IGNORE, ierr)
  call check(all(gathered(7, :) == (/ (peer * 1000 + i, i = 1, 50) /)), 13)
  call check(message == MPI_MESSAGE_NULL, 9)
  call MPI_Wait(request, MPI_STATUS_IGNORE)

  ! persistent
  call MPI_Recv_init(in, n, MPI_REAL8, peer, 23, comm, requests(1))
  call MPI_Ssend_init(out, n, MPI_REAL8, peer, 23, comm, requests(2))
  do round = 1, 10
    out(1:n) = rank + round
    call MPI_Startall(2, requests(1:2))
    call MPI_Waitall(2, requests(1:2), statuses(1:2))
    call check(all(in(1:n) == peer + round), 10)
  end do
  call MPI_Request_free(requests(1))
  call MPI_Request_free(requests(2))

  ! inter-communicator of even and odd ranks
  if (size == 2) then
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), rank, half)
    call MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, peer, 5, inter)
    call MPI_Sendrecv(rank, 1, MPI_INTEGER, 0, 1, received, 1, MPI_INTEGER, 0, 1, inter, status)
    call check(received(1) == peer, 11)
    call MPI_Comm_free(inter)
    call MPI_Comm_free(half)
  end if

  call MPI_Comm_free(comm)
  call MPI_Allreduce(failures, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0 .and. total == 0) print '(a)', 'PASS usempif08'
  call MPI_Finalize()
  if (total /= 0) error stop 1

contains

  ! Strided slices through assumed-shape arguments: the compiler makes contiguous copies for blocking
  ! calls.
  subroutine assumed(to_send, to_receive)
    real(kind=8), intent(inout) :: to_send(:), to_receive(:)
    integer :: k
    to_send = (/ (rank + k * 0.5d0, k = 1, n) /)
    to_receive = 0
    call MPI_Sendrecv(to_send(1:n:2), n / 2, MPI_REAL8, peer, 30, to_receive(1:n:2), n / 2, MPI_REAL8, &
                      peer, 30, comm, status)
    do k = 1, n
      if (mod(k, 2) == 1 .and. to_receive(k) /= peer + k * 0.5d0) exit
      if (mod(k, 2) == 0 .and. to_receive(k) /= 0) exit
    end do
    call check(k == n + 1, 12)
  end subroutine assumed

  subroutine check(good, number)
    logical, intent(in) :: good
    integer, intent(in) :: number
    if (.not. good) then
      failures = failures + 1
      write (0, '(a, i4, a, i4)') 'FAIL usempif08 rank', rank, ' check', number
    end if
  end subroutine check

end program usempif08
