! COMMON blocks, module data with and without initial values, allocatables and automatic arrays: the
! first three and large allocatables lie in the reach file, and messages between them are right.
module stored
  implicit none
  real(8) :: given(20000) = 3.5d0
  real(8), save :: zeroed(300000)
  real(8), allocatable :: dynamic(:)
end module stored

program arrays
  use stored
  use iso_c_binding
  implicit none
  include 'mpif.h'
  interface
    integer(c_int) function where_is(start, bytes) bind(c, name='where_is')
      import
      type(*), intent(in) :: start(*)
      integer(c_long), intent(in) :: bytes
    end function where_is
  end interface
  real(8) :: shared_values(100000)
  integer :: tail
  common /block/ shared_values, tail
  integer :: rank, ranks, peer, error, wrong, total, i
  wrong = 0
  shared_values(77) = 7.5d0
  tail = 5
  call MPI_INIT(error)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, error)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, error)
  peer = ieor(rank, 1)
  allocate(dynamic(200000))
  if (shared_values(77) /= 7.5d0 .or. tail /= 5 .or. given(1) /= 3.5d0) call fail('contents')
  if (where_is(shared_values, 800000_c_long) /= 1) call fail('COMMON')
  if (where_is(given, 160000_c_long) /= 1) call fail('module data with values')
  if (where_is(zeroed, 2400000_c_long) /= 1) call fail('module data')
  if (where_is(dynamic, 1600000_c_long) /= 1) call fail('allocatable')
  if (peer < ranks) then
    do i = 1, 100000
      shared_values(i) = rank * 1000000.d0 + i
    end do
    call MPI_SENDRECV(shared_values, 100000, MPI_DOUBLE_PRECISION, peer, 1, dynamic, 100000, &
                      MPI_DOUBLE_PRECISION, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    do i = 1, 100000
      if (dynamic(i) /= peer * 1000000.d0 + i) then
        call fail('values of the neighbour')
        exit
      end if
    end do
    dynamic = rank + 0.25d0
    call MPI_SENDRECV(dynamic, 200000, MPI_DOUBLE_PRECISION, peer, 2, zeroed(1001), 200000, &
                      MPI_DOUBLE_PRECISION, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
    if (any(zeroed(1001:201000) /= peer + 0.25d0) .or. zeroed(1000) /= 0) call fail('into module data')
    if (tail /= 5) call fail('behind the COMMON array')
  end if
  deallocate(dynamic)
  call MPI_ALLREDUCE(wrong, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
  if (rank == 0 .and. total == 0) print '(a)', 'PASS arrays'
  call MPI_FINALIZE(error)
contains
  subroutine fail(what)
    character(*), intent(in) :: what
    print '(a, i0, 2a)', 'FAIL arrays rank ', rank, ': ', what
    wrong = wrong + 1
  end subroutine fail
end program arrays
