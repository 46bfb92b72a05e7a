! The Fortran module: messages around a ring in every way, probes, ownership and blocking
! collectives, every answer checked.
program messages
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use smpi_f08
  implicit none
  integer, parameter :: m = 3000
  integer :: rank, ranks, before, after, i, views, count, wrong, all_wrong
  logical :: flag
  type(c_ptr) :: block, address, mine
  type(SMPI_View) :: seen, other
  type(SMPI_View), allocatable :: rows(:)
  type(MPI_Comm) :: comm
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: status
  integer, pointer :: own(:), data(:)
  integer, target :: few(3)
  integer, allocatable, target :: parts(:)

  call MPI_Init()
  call MPI_Comm_dup(MPI_COMM_WORLD, comm)
  call MPI_Comm_rank(comm, rank)
  call MPI_Comm_size(comm, ranks)
  call SMPI_Comm_attach(comm)
  before = mod(rank + ranks - 1, ranks)
  after = mod(rank + 1, ranks)
  wrong = 0
  call SMPI_Comm_near(comm, rank, flag)
  call check(flag)

  ! Short and long, lent and of other memory, received with and without waiting.
  call SMPI_Alloc(4_MPI_ADDRESS_KIND * m, block)
  call c_f_pointer(block, own, [m])
  own = rank + 5
  few = [rank, 2 * rank, 3 * rank]
  call SMPI_Irecv(seen, m, MPI_INTEGER, before, 1, comm, requests(1))
  call SMPI_Isend(block, m, MPI_INTEGER, after, 1, comm, requests(2))
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  call SMPI_View_get(seen, address, status)
  call c_f_pointer(address, data, [m])
  call MPI_Get_count(status, MPI_INTEGER, count)
  call check(all(data == before + 5) .and. count == m .and. status%MPI_SOURCE == before)
  call SMPI_View_release(seen)
  call SMPI_Irecv(seen, 3, MPI_INTEGER, before, 2, comm, requests(1))
  call SMPI_Send(c_loc(few), 3, MPI_INTEGER, after, 2, comm)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
  call SMPI_View_get(seen, address)
  call c_f_pointer(address, data, [3])
  call check(all(data == [before, 2 * before, 3 * before]))
  call SMPI_View_release(seen)
  call SMPI_Reclaim(block)
  call SMPI_Lent(block, views)
  call check(views == 0)

  ! Probes tell what a receive will get.
  call SMPI_Isend(block, m, MPI_INTEGER, after, 3, comm, requests(1))
  call SMPI_Probe(MPI_ANY_SOURCE, 3, comm, status)
  call MPI_Get_count(status, MPI_INTEGER, count)
  call check(status%MPI_SOURCE == before .and. status%MPI_TAG == 3 .and. count == m)
  call SMPI_Iprobe(before, MPI_ANY_TAG, comm, flag, status)
  call check(flag .and. status%MPI_TAG == 3)
  call SMPI_Recv(seen, m, MPI_INTEGER, before, 3, comm, status)
  call MPI_Get_count(status, MPI_INTEGER, count)
  call check(status%MPI_SOURCE == before .and. count == m)
  call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
  call SMPI_View_release(seen)
  call MPI_Barrier(comm)
  call SMPI_Iprobe(before, 3, comm, flag)
  call check(.not. flag)
  call SMPI_Reclaim(block)

  ! The blocks go on by one rank, twice, and are written there.
  do i = 1, 2
    if (i == 1) then
      call SMPI_Irecv(other, m, MPI_INTEGER, before, 4, comm, requests(1))
      call SMPI_Pass(block, m, MPI_INTEGER, after, 4, comm)
      call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    else
      call SMPI_Ipass(block, m, MPI_INTEGER, after, 4, comm, requests(1))
      call SMPI_Recv(other, m, MPI_INTEGER, before, 4, comm)
      call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    end if
    call SMPI_View_own(other, mine)
    block = mine
    call c_f_pointer(block, own, [m])
    own = own + 100
  end do
  call check(all(own == mod(rank + 2 * ranks - 2, ranks) + 205))

  ! Everybody's rows, and parts of the last rank's numbers.
  allocate(rows(ranks), parts(7 * ranks))
  parts = [(i, i = 0, 7 * ranks - 1)]
  call SMPI_Allgather(block, m, MPI_INTEGER, comm, rows)
  do i = 1, ranks
    call SMPI_View_get(rows(i), address)
    call c_f_pointer(address, data, [m])
    call check(all(data == mod(i - 1 + 2 * ranks - 2, ranks) + 205))
    call SMPI_View_release(rows(i))
  end do
  call SMPI_Scatter(c_loc(parts), 7, MPI_INTEGER, ranks - 1, comm, seen)
  call SMPI_View_get(seen, address)
  call c_f_pointer(address, data, [7])
  call check(all(data == parts(7 * rank + 1:7 * rank + 7)))
  call SMPI_View_release(seen)
  call SMPI_Reclaim(block)
  call SMPI_Free(block)

  ! Errors come back where they are asked for.
  call MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN)
  call SMPI_Send(c_loc(few), 3, MPI_INTEGER, ranks, 1, comm, i)
  call check(i /= MPI_SUCCESS)
  call SMPI_Comm_detach(comm)
  call SMPI_Comm_near(comm, rank, flag, i)
  call check(i /= MPI_SUCCESS)
  call MPI_Comm_free(comm)

  call MPI_Allreduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0 .and. all_wrong == 0) print '(a)', 'messages: right'
  if (rank == 0 .and. all_wrong /= 0) print '(a, i0)', 'messages: WRONG ', all_wrong
  call MPI_Finalize()

contains

  subroutine check(right)
    logical, intent(in) :: right
    if (.not. right) wrong = wrong + 1
  end subroutine

end program
