! Fortran with mpif.h: blocking and non-blocking messages, statuses, request arrays, COMMON blocks,
! automatic and allocatable arrays, character data, derived datatypes, wildcards, MPI_BOTTOM,
! ignored statuses, persistent requests.
program mpifh
  implicit none
  include 'mpif.h'
  integer, parameter :: n = 30000
  double precision :: shared_out(n), shared_in(n)
  common /exchange/ shared_out, shared_in
  integer :: ierr, rank, size, peer, i, failures, total, count, index, outcount
  integer :: requests(4), statuses(MPI_STATUS_SIZE, 4), status(MPI_STATUS_SIZE), indices(4)
  integer, allocatable :: big_out(:), big_in(:)
  integer :: matrix(50, 60), rows(60), column_type, row_type, persistent(2), round, request
  integer :: message
  character(len=20) :: text_out, text_in
  logical :: flag
  integer(kind=MPI_ADDRESS_KIND) :: place(2)
  integer :: lengths(2), types(2), bottom_type

  failures = 0
  call MPI_INIT(ierr)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierr)
  peer = ieor(rank, 1)

  ! COMMON
  do i = 1, n
    shared_out(i) = rank * 1.0d6 + i
    shared_in(i) = -1
  end do
  if (rank < peer) then
    call MPI_SEND(shared_out, n, MPI_DOUBLE_PRECISION, peer, 7, MPI_COMM_WORLD, ierr)
    call MPI_RECV(shared_in, n, MPI_DOUBLE_PRECISION, peer, 7, MPI_COMM_WORLD, status, ierr)
  else
    call MPI_RECV(shared_in, n, MPI_DOUBLE_PRECISION, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
    call MPI_SEND(shared_out, n, MPI_DOUBLE_PRECISION, peer, 7, MPI_COMM_WORLD, ierr)
  end if
  call MPI_GET_COUNT(status, MPI_DOUBLE_PRECISION, count, ierr)
  call check(count == n, 1)
  call check(status(MPI_SOURCE) == peer .and. status(MPI_TAG) == 7, 2)
  call check(all(shared_in == (/ (peer * 1.0d6 + i, i = 1, n) /)), 3)

  ! non-blocking, all completions
  allocate(big_out(4 * n), big_in(4 * n))
  do round = 1, 5
    big_out = (/ (i * (rank + 2) + round, i = 1, 4 * n) /)
    big_in = 0
    do i = 1, 2
      call MPI_IRECV(big_in((i - 1) * 2 * n + 1), 2 * n, MPI_INTEGER, peer, i, MPI_COMM_WORLD, requests(i), ierr)
    end do
    do i = 1, 2
      call MPI_ISEND(big_out((i - 1) * 2 * n + 1), 2 * n, MPI_INTEGER, peer, i, MPI_COMM_WORLD, requests(2 + i), ierr)
    end do
    if (round == 1) then
      call MPI_WAITALL(4, requests, statuses, ierr)
      call check(statuses(MPI_TAG, 1) == 1 .and. statuses(MPI_TAG, 2) == 2, 4)
    else if (round == 2) then
      do i = 1, 4
        call MPI_WAITANY(4, requests, index, status, ierr)
        call check(index >= 1 .and. index <= 4, 5)
      end do
      call MPI_WAITANY(4, requests, index, status, ierr)
      ! MPICH 4.0 itself adds one here, as it does to indices
      call check(index == MPI_UNDEFINED .or. index == MPI_UNDEFINED + 1, 6)
    else if (round == 3) then
      total = 0
      do while (total < 4)
        call MPI_WAITSOME(4, requests, outcount, indices, statuses, ierr)
        call check(all(indices(1:outcount) >= 1) .and. all(indices(1:outcount) <= 4), 7)
        total = total + outcount
      end do
    else if (round == 4) then
      flag = .false.
      do while (.not. flag)
        call MPI_TESTALL(4, requests, flag, MPI_STATUSES_IGNORE, ierr)
      end do
    else
      do i = 4, 1, -1
        call MPI_WAIT(requests(i), MPI_STATUS_IGNORE, ierr)
      end do
    end if
    call check(all(requests == MPI_REQUEST_NULL), 8)
    call check(all(big_in == (/ (i * (peer + 2) + round, i = 1, 4 * n) /)), 9)
  end do

  ! a row of a matrix goes into a vector
  call MPI_TYPE_VECTOR(60, 1, 50, MPI_INTEGER, row_type, ierr)
  call MPI_TYPE_COMMIT(row_type, ierr)
  do i = 1, 60
    matrix(:, i) = (/ (rank * 100000 + i * 100 + count, count = 1, 50) /)
  end do
  call MPI_SENDRECV(matrix(7, 1), 1, row_type, peer, 9, rows, 60, MPI_INTEGER, peer, 9, &
                    MPI_COMM_WORLD, status, ierr)
  call check(all(rows == (/ (peer * 100000 + i * 100 + 7, i = 1, 60) /)), 10)
  call MPI_TYPE_FREE(row_type, ierr)

  ! characters, probes, matched probes
  write (text_out, '(a, i4)') 'from rank', rank
  call MPI_ISEND(text_out, 20, MPI_CHARACTER, peer, 11, MPI_COMM_WORLD, request, ierr)
  call MPI_PROBE(peer, MPI_ANY_TAG, MPI_COMM_WORLD, status, ierr)
  call MPI_GET_COUNT(status, MPI_CHARACTER, count, ierr)
  call check(count == 20 .and. status(MPI_TAG) == 11, 11)
  call MPI_MPROBE(peer, 11, MPI_COMM_WORLD, message, status, ierr)
  call MPI_MRECV(text_in, 20, MPI_CHARACTER, message, status, ierr)
  call check(message == MPI_MESSAGE_NULL, 12)
  write (text_out, '(a, i4)') 'from rank', peer
  call check(text_in == text_out, 13)
  write (text_out, '(a, i4)') 'from rank', rank
  call MPI_WAIT(request, status, ierr)

  ! persistent
  call MPI_RECV_INIT(big_in, n, MPI_INTEGER, peer, 12, MPI_COMM_WORLD, persistent(1), ierr)
  call MPI_SEND_INIT(big_out, n, MPI_INTEGER, peer, 12, MPI_COMM_WORLD, persistent(2), ierr)
  do round = 1, 10
    big_out(1:n) = rank + round
    call MPI_STARTALL(2, persistent, ierr)
    call MPI_WAITALL(2, persistent, MPI_STATUSES_IGNORE, ierr)
    call check(all(big_in(1:n) == peer + round), 14)
  end do
  call MPI_REQUEST_FREE(persistent(1), ierr)
  call MPI_REQUEST_FREE(persistent(2), ierr)
  call check(persistent(1) == MPI_REQUEST_NULL, 15)

  ! MPI_BOTTOM
  call MPI_GET_ADDRESS(shared_out, place(1), ierr)
  call MPI_GET_ADDRESS(rows, place(2), ierr)
  lengths = (/ n, 60 /)
  types = (/ MPI_DOUBLE_PRECISION, MPI_INTEGER /)
  call MPI_TYPE_CREATE_STRUCT(2, lengths, place, types, bottom_type, ierr)
  call MPI_TYPE_COMMIT(bottom_type, ierr)
  rows = rank
  call MPI_SENDRECV_REPLACE(MPI_BOTTOM, 1, bottom_type, peer, 13, peer, 13, MPI_COMM_WORLD, status, ierr)
  call check(all(rows == peer) .and. shared_out(n) == peer * 1.0d6 + n, 16)
  call MPI_TYPE_FREE(bottom_type, ierr)

  ! cancel
  call MPI_IRECV(rows, 60, MPI_INTEGER, peer, 99, MPI_COMM_WORLD, request, ierr)
  call MPI_CANCEL(request, ierr)
  call MPI_WAIT(request, status, ierr)
  call MPI_TEST_CANCELLED(status, flag, ierr)
  call check(flag, 17)

  deallocate(big_out, big_in)
  call MPI_ALLREDUCE(failures, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. total == 0) print '(a)', 'PASS mpifh'
  call MPI_FINALIZE(ierr)
  if (total /= 0) error stop 1

contains

  subroutine check(good, number)
    logical, intent(in) :: good
    integer, intent(in) :: number
    if (.not. good) then
      failures = failures + 1
      write (0, '(a, i4, a, i4)') 'FAIL mpifh rank', rank, ' check', number
    end if
  end subroutine check

end program mpifh
