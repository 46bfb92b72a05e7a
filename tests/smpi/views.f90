! The Fortran module: collectives of views, blocking and not, every answer checked.
program views
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use smpi_f08
  implicit none
  integer, parameter :: m = 1000
  integer :: rank, ranks, i, wrong, all_wrong
  type(c_ptr) :: block, address
  type(SMPI_View) :: seen(3)
  type(SMPI_View), allocatable :: rows(:)
  type(MPI_Request) :: requests(3)
  integer, pointer :: own(:), data(:)
  integer, allocatable, target :: parts(:)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call SMPI_Comm_attach(MPI_COMM_WORLD)
  allocate(rows(ranks), parts(m * ranks))
  parts = [(i, i = 0, m * ranks - 1)]
  wrong = 0
  call SMPI_Alloc(4_MPI_ADDRESS_KIND * m, block)
  call c_f_pointer(block, own, [m])
  own = rank + 7

  call SMPI_Bcast(block, m, MPI_INTEGER, 0, MPI_COMM_WORLD, seen(1))
  call SMPI_View_get(seen(1), address)
  call c_f_pointer(address, data, [m])
  if (any(data /= 7)) wrong = wrong + 1
  call SMPI_View_release(seen(1))

  call SMPI_Ibcast(block, m, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, seen(2), requests(1))
  call SMPI_Iallgather(block, m, MPI_INTEGER, MPI_COMM_WORLD, rows, requests(2))
  call SMPI_Iscatter(c_loc(parts), m, MPI_INTEGER, 0, MPI_COMM_WORLD, seen(3), requests(3))
  call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)
  call SMPI_View_get(seen(2), address)
  call c_f_pointer(address, data, [m])
  if (any(data /= ranks + 6)) wrong = wrong + 1
  call SMPI_View_get(seen(3), address)
  call c_f_pointer(address, data, [m])
  if (any(data /= parts(m * rank + 1:m * (rank + 1)))) wrong = wrong + 1
  call SMPI_View_release(seen(2))
  call SMPI_View_release(seen(3))
  do i = 1, ranks
    call SMPI_View_get(rows(i), address)
    call c_f_pointer(address, data, [m])
    if (any(data /= i + 6)) wrong = wrong + 1
    call SMPI_View_release(rows(i))
  end do
  call SMPI_Reclaim(block)
  call SMPI_Free(block)

  call MPI_Allreduce(wrong, all_wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0 .and. all_wrong == 0) print '(a)', 'views: right'
  if (rank == 0 .and. all_wrong /= 0) print '(a, i0)', 'views: WRONG ', all_wrong
  call MPI_Finalize()
end program
