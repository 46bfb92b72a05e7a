! SMPI for Fortran: the functions of overdrive/smpi.h with handles of mpi_f08.
!
! Compile it with the program's MPI, together with smpi_fortran.c. Message memory and views are C
! pointers; c_f_pointer makes array pointers of them:
!
!   type(c_ptr) :: block, seen
!   real(8), pointer :: a(:, :), b(:, :)
!   call SMPI_Alloc(8_MPI_ADDRESS_KIND * m * m, block)
!   call c_f_pointer(block, a, [m, m])
!   call SMPI_Send(block, m * m, MPI_DOUBLE_PRECISION, 1, 0, comm)
!   ...
!   call SMPI_Recv(view, m * m, MPI_DOUBLE_PRECISION, 0, 0, comm)     ! rank 1
!   call SMPI_View_get(view, seen)
!   call c_f_pointer(seen, b, [m, m])                                 ! b is not to be written
!   call SMPI_View_release(view)
!
! ierror is optional everywhere, and so are statuses. What is sent is named by its C address:
! c_loc(array) of any contiguous array with the attribute target.
module smpi_f08
  use, intrinsic :: iso_c_binding
  use mpi_f08
  implicit none
  private
  public :: SMPI_View, SMPI_VIEW_NULL
  public :: SMPI_Comm_attach, SMPI_Comm_detach, SMPI_Comm_near
  public :: SMPI_Alloc, SMPI_Free, SMPI_Lent, SMPI_Reclaim
  public :: SMPI_Send, SMPI_Isend, SMPI_Pass, SMPI_Ipass
  public :: SMPI_Recv, SMPI_Irecv, SMPI_Probe, SMPI_Iprobe
  public :: SMPI_View_get, SMPI_View_release, SMPI_View_own
  public :: SMPI_Bcast, SMPI_Scatter, SMPI_Allgather
  public :: SMPI_Ibcast, SMPI_Iscatter, SMPI_Iallgather

  type, bind(c) :: SMPI_View
    type(c_ptr) :: handle = c_null_ptr
  end type
  type(SMPI_View), parameter :: SMPI_VIEW_NULL = SMPI_View(c_null_ptr)

  interface
    integer(c_int) function c_attach(comm) bind(c, name="smpi_f_attach")
      import :: c_int
      integer(c_int), value :: comm
    end function
    integer(c_int) function c_detach(comm) bind(c, name="smpi_f_detach")
      import :: c_int
      integer(c_int), value :: comm
    end function
    integer(c_int) function c_near(comm, rank, flag) bind(c, name="smpi_f_near")
      import :: c_int
      integer(c_int), value :: comm, rank
      integer(c_int) :: flag
    end function
    integer(c_int) function c_alloc(bytes, base) bind(c, name="SMPI_Alloc")
      import :: c_int, c_ptr, c_intptr_t
      integer(c_intptr_t), value :: bytes
      type(c_ptr) :: base
    end function
    integer(c_int) function c_free(base) bind(c, name="SMPI_Free")
      import :: c_int, c_ptr
      type(c_ptr), value :: base
    end function
    integer(c_int) function c_lent(base, views) bind(c, name="SMPI_Lent")
      import :: c_int, c_ptr
      type(c_ptr), value :: base
      integer(c_int) :: views
    end function
    integer(c_int) function c_reclaim(base) bind(c, name="SMPI_Reclaim")
      import :: c_int, c_ptr
      type(c_ptr), value :: base
    end function
    integer(c_int) function c_start(buf, count, datatype, dest, tag, comm, pass, request) &
        bind(c, name="smpi_f_start")
      import :: c_int, c_ptr, c_int64_t
      type(c_ptr), value :: buf
      integer(c_int64_t), value :: count
      integer(c_int), value :: datatype, dest, tag, comm, pass
      integer(c_int), optional :: request
    end function
    integer(c_int) function c_recv(view, count, datatype, source, tag, comm, request) &
        bind(c, name="smpi_f_recv")
      import :: c_int, c_int64_t, SMPI_View
      type(SMPI_View) :: view
      integer(c_int64_t), value :: count
      integer(c_int), value :: datatype, source, tag, comm
      integer(c_int), optional :: request
    end function
    integer(c_int) function c_probe(source, tag, comm, flag, found_source, found_tag, bytes) &
        bind(c, name="smpi_f_probe")
      import :: c_int, c_int64_t
      integer(c_int), value :: source, tag, comm
      integer(c_int), optional :: flag
      integer(c_int) :: found_source, found_tag
      integer(c_int64_t) :: bytes
    end function
    integer(c_int) function c_get(view, address, source, tag, bytes) bind(c, name="smpi_f_get")
      import :: c_int, c_ptr, c_int64_t, SMPI_View
      type(SMPI_View), value :: view
      type(c_ptr) :: address
      integer(c_int) :: source, tag
      integer(c_int64_t) :: bytes
    end function
    integer(c_int) function c_release(view) bind(c, name="SMPI_View_release")
      import :: c_int, SMPI_View
      type(SMPI_View) :: view
    end function
    integer(c_int) function c_own(view, base) bind(c, name="SMPI_View_own")
      import :: c_int, c_ptr, SMPI_View
      type(SMPI_View) :: view
      type(c_ptr) :: base
    end function
    integer(c_int) function c_bcast(buf, count, datatype, root, comm, view, request) &
        bind(c, name="smpi_f_bcast")
      import :: c_int, c_ptr, c_int64_t, SMPI_View
      type(c_ptr), value :: buf
      integer(c_int64_t), value :: count
      integer(c_int), value :: datatype, root, comm
      type(SMPI_View) :: view
      integer(c_int), optional :: request
    end function
    integer(c_int) function c_scatter(buf, count, datatype, root, comm, view, request) &
        bind(c, name="smpi_f_scatter")
      import :: c_int, c_ptr, c_int64_t, SMPI_View
      type(c_ptr), value :: buf
      integer(c_int64_t), value :: count
      integer(c_int), value :: datatype, root, comm
      type(SMPI_View) :: view
      integer(c_int), optional :: request
    end function
    integer(c_int) function c_allgather(buf, count, datatype, comm, views, request) &
        bind(c, name="smpi_f_allgather")
      import :: c_int, c_ptr, c_int64_t, SMPI_View
      type(c_ptr), value :: buf
      integer(c_int64_t), value :: count
      integer(c_int), value :: datatype, comm
      type(SMPI_View) :: views(*)
      integer(c_int), optional :: request
    end function
  end interface

contains

  subroutine tell(code, ierror)
    integer(c_int), intent(in) :: code
    integer, optional, intent(out) :: ierror
    if (present(ierror)) ierror = code
  end subroutine

  subroutine fill(status, source, tag, bytes)
    type(MPI_Status), optional, intent(out) :: status
    integer(c_int), intent(in) :: source, tag
    integer(c_int64_t), intent(in) :: bytes
    if (.not. present(status)) return
    status%MPI_SOURCE = source
    status%MPI_TAG = tag
    status%MPI_ERROR = MPI_SUCCESS
    call MPI_Status_set_cancelled(status, .false.)
    call MPI_Status_set_elements(status, MPI_BYTE, int(min(bytes, int(huge(1), c_int64_t))))
  end subroutine

  subroutine SMPI_Comm_attach(comm, ierror)
    type(MPI_Comm), intent(in) :: comm
    integer, optional, intent(out) :: ierror
    call tell(c_attach(comm%MPI_VAL), ierror)
  end subroutine

  subroutine SMPI_Comm_detach(comm, ierror)
    type(MPI_Comm), intent(in) :: comm
    integer, optional, intent(out) :: ierror
    call tell(c_detach(comm%MPI_VAL), ierror)
  end subroutine

  subroutine SMPI_Comm_near(comm, rank, flag, ierror)
    type(MPI_Comm), intent(in) :: comm
    integer, intent(in) :: rank
    logical, intent(out) :: flag
    integer(c_int) :: answer
    integer, optional, intent(out) :: ierror
    answer = 0
    call tell(c_near(comm%MPI_VAL, rank, answer), ierror)
    flag = answer /= 0
  end subroutine

  subroutine SMPI_Alloc(size, baseptr, ierror)
    integer(MPI_ADDRESS_KIND), intent(in) :: size
    type(c_ptr), intent(out) :: baseptr
    integer, optional, intent(out) :: ierror
    baseptr = c_null_ptr
    call tell(c_alloc(int(size, c_intptr_t), baseptr), ierror)
  end subroutine

  subroutine SMPI_Free(base, ierror)
    type(c_ptr), intent(in) :: base
    integer, optional, intent(out) :: ierror
    call tell(c_free(base), ierror)
  end subroutine

  subroutine SMPI_Lent(base, views, ierror)
    type(c_ptr), intent(in) :: base
    integer, intent(out) :: views
    integer, optional, intent(out) :: ierror
    views = 0
    call tell(c_lent(base, views), ierror)
  end subroutine

  subroutine SMPI_Reclaim(base, ierror)
    type(c_ptr), intent(in) :: base
    integer, optional, intent(out) :: ierror
    call tell(c_reclaim(base), ierror)
  end subroutine

  subroutine SMPI_Send(buf, count, datatype, dest, tag, comm, ierror)
    type(c_ptr), intent(in) :: buf
    integer, intent(in) :: count, dest, tag
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    integer, optional, intent(out) :: ierror
    call tell(c_start(buf, int(count, c_int64_t), datatype%MPI_VAL, dest, tag, &
        comm%MPI_VAL, 0), ierror)
  end subroutine

  subroutine SMPI_Pass(base, count, datatype, dest, tag, comm, ierror)
    type(c_ptr), intent(in) :: base
    integer, intent(in) :: count, dest, tag
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    integer, optional, intent(out) :: ierror
    call tell(c_start(base, int(count, c_int64_t), datatype%MPI_VAL, dest, tag, &
        comm%MPI_VAL, 1), ierror)
  end subroutine

  subroutine SMPI_Isend(buf, count, datatype, dest, tag, comm, request, ierror)
    type(c_ptr), intent(in) :: buf
    integer, intent(in) :: count, dest, tag
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Request), intent(out) :: request
    integer, optional, intent(out) :: ierror
    call tell(c_start(buf, int(count, c_int64_t), datatype%MPI_VAL, dest, tag, &
        comm%MPI_VAL, 0, request%MPI_VAL), ierror)
  end subroutine

  subroutine SMPI_Ipass(base, count, datatype, dest, tag, comm, request, ierror)
    type(c_ptr), intent(in) :: base
    integer, intent(in) :: count, dest, tag
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Request), intent(out) :: request
    integer, optional, intent(out) :: ierror
    call tell(c_start(base, int(count, c_int64_t), datatype%MPI_VAL, dest, tag, &
        comm%MPI_VAL, 1, request%MPI_VAL), ierror)
  end subroutine

  subroutine SMPI_Recv(view, count, datatype, source, tag, comm, status, ierror)
    type(SMPI_View), intent(out) :: view
    integer, intent(in) :: count, source, tag
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Status), optional, intent(out) :: status
    integer, optional, intent(out) :: ierror
    type(c_ptr) :: address
    integer(c_int) :: code, from, its_tag
    integer(c_int64_t) :: bytes
    code = c_recv(view, int(count, c_int64_t), datatype%MPI_VAL, source, tag, comm%MPI_VAL)
    if (code == MPI_SUCCESS) code = c_get(view, address, from, its_tag, bytes)
    if (code == MPI_SUCCESS) call fill(status, from, its_tag, bytes)
    call tell(code, ierror)
  end subroutine

  subroutine SMPI_Irecv(view, count, datatype, source, tag, comm, request, ierror)
    type(SMPI_View), intent(out) :: view
    integer, intent(in) :: count, source, tag
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Request), intent(out) :: request
    integer, optional, intent(out) :: ierror
    call tell(c_recv(view, int(count, c_int64_t), datatype%MPI_VAL, source, tag, &
        comm%MPI_VAL, request%MPI_VAL), ierror)
  end subroutine

  subroutine SMPI_Probe(source, tag, comm, status, ierror)
    integer, intent(in) :: source, tag
    type(MPI_Comm), intent(in) :: comm
    type(MPI_Status), optional, intent(out) :: status
    integer, optional, intent(out) :: ierror
    integer(c_int) :: code, from, its_tag
    integer(c_int64_t) :: bytes
    code = c_probe(source, tag, comm%MPI_VAL, found_source=from, found_tag=its_tag, bytes=bytes)
    if (code == MPI_SUCCESS) call fill(status, from, its_tag, bytes)
    call tell(code, ierror)
  end subroutine

  subroutine SMPI_Iprobe(source, tag, comm, flag, status, ierror)
    integer, intent(in) :: source, tag
    type(MPI_Comm), intent(in) :: comm
    logical, intent(out) :: flag
    type(MPI_Status), optional, intent(out) :: status
    integer, optional, intent(out) :: ierror
    integer(c_int) :: code, answer, from, its_tag
    integer(c_int64_t) :: bytes
    answer = 0
    code = c_probe(source, tag, comm%MPI_VAL, answer, from, its_tag, bytes)
    flag = answer /= 0
    if (code == MPI_SUCCESS .and. flag) call fill(status, from, its_tag, bytes)
    call tell(code, ierror)
  end subroutine

  subroutine SMPI_View_get(view, address, status, ierror)
    type(SMPI_View), intent(in) :: view
    type(c_ptr), intent(out) :: address
    type(MPI_Status), optional, intent(out) :: status
    integer, optional, intent(out) :: ierror
    integer(c_int) :: code, from, its_tag
    integer(c_int64_t) :: bytes
    address = c_null_ptr
    code = c_get(view, address, from, its_tag, bytes)
    if (code == MPI_SUCCESS) call fill(status, from, its_tag, bytes)
    call tell(code, ierror)
  end subroutine

  subroutine SMPI_View_release(view, ierror)
    type(SMPI_View), intent(inout) :: view
    integer, optional, intent(out) :: ierror
    call tell(c_release(view), ierror)
  end subroutine

  subroutine SMPI_View_own(view, baseptr, ierror)
    type(SMPI_View), intent(inout) :: view
    type(c_ptr), intent(out) :: baseptr
    integer, optional, intent(out) :: ierror
    baseptr = c_null_ptr
    call tell(c_own(view, baseptr), ierror)
  end subroutine

  subroutine SMPI_Bcast(buf, count, datatype, root, comm, view, ierror)
    type(c_ptr), intent(in) :: buf
    integer, intent(in) :: count, root
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(SMPI_View), intent(out) :: view
    integer, optional, intent(out) :: ierror
    call tell(c_bcast(buf, int(count, c_int64_t), datatype%MPI_VAL, root, &
        comm%MPI_VAL, view), ierror)
  end subroutine

  subroutine SMPI_Scatter(buf, count, datatype, root, comm, view, ierror)
    type(c_ptr), intent(in) :: buf
    integer, intent(in) :: count, root
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(SMPI_View), intent(out) :: view
    integer, optional, intent(out) :: ierror
    call tell(c_scatter(buf, int(count, c_int64_t), datatype%MPI_VAL, root, &
        comm%MPI_VAL, view), ierror)
  end subroutine

  subroutine SMPI_Allgather(buf, count, datatype, comm, views, ierror)
    type(c_ptr), intent(in) :: buf
    integer, intent(in) :: count
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(SMPI_View), intent(inout) :: views(*)
    integer, optional, intent(out) :: ierror
    call tell(c_allgather(buf, int(count, c_int64_t), datatype%MPI_VAL, comm%MPI_VAL, views), &
        ierror)
  end subroutine

  subroutine SMPI_Ibcast(buf, count, datatype, root, comm, view, request, ierror)
    type(c_ptr), intent(in) :: buf
    integer, intent(in) :: count, root
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(SMPI_View), intent(out) :: view
    type(MPI_Request), intent(out) :: request
    integer, optional, intent(out) :: ierror
    call tell(c_bcast(buf, int(count, c_int64_t), datatype%MPI_VAL, root, &
        comm%MPI_VAL, view, request%MPI_VAL), ierror)
  end subroutine

  subroutine SMPI_Iscatter(buf, count, datatype, root, comm, view, request, ierror)
    type(c_ptr), intent(in) :: buf
    integer, intent(in) :: count, root
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(SMPI_View), intent(out) :: view
    type(MPI_Request), intent(out) :: request
    integer, optional, intent(out) :: ierror
    call tell(c_scatter(buf, int(count, c_int64_t), datatype%MPI_VAL, root, &
        comm%MPI_VAL, view, request%MPI_VAL), ierror)
  end subroutine

  subroutine SMPI_Iallgather(buf, count, datatype, comm, views, request, ierror)
    type(c_ptr), intent(in) :: buf
    integer, intent(in) :: count
    type(MPI_Datatype), intent(in) :: datatype
    type(MPI_Comm), intent(in) :: comm
    type(SMPI_View), intent(inout) :: views(*)
    type(MPI_Request), intent(out) :: request
    integer, optional, intent(out) :: ierror
    call tell(c_allgather(buf, int(count, c_int64_t), datatype%MPI_VAL, comm%MPI_VAL, views, &
        request%MPI_VAL), ierror)
  end subroutine

end module
