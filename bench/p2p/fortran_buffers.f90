! Ping-pong through the Fortran interface of MPI from the two kinds of memory that only Fortran has: a COMMON block and
! allocatable arrays. Linked into od_p2p where the host has Fortran; the sampling is done by the C part.
module od_fortran_buffers
  use, intrinsic :: iso_c_binding
  use mpi
  implicit none
  private

  integer, parameter :: max_words = 4 * 1024 * 1024 / 8

  integer(c_int64_t) :: common_send(max_words), common_receive(max_words)
  common /od_p2p_common/ common_send, common_receive
  integer(c_int64_t), allocatable :: allocated_send(:), allocated_receive(:)

contains

  ! Runs `iterations` round trips with `partner` and returns the sum of all words received with rewritten buffers,
  ! in which every send writes seed+1, seed+2, ... first. `seed` advances by one per round trip.
  integer(c_int64_t) function od_fortran_ping_pong(use_common, words, app, nonblocking, first, partner, seed, &
                                                   iterations) bind(C)
    integer(c_int), value, intent(in) :: use_common, words, app, nonblocking, first, partner
    integer(c_int64_t), intent(inout) :: seed
    integer(c_int64_t), value, intent(in) :: iterations

    if (use_common /= 0) then
      od_fortran_ping_pong = run(common_send, common_receive)
    else
      if (allocated(allocated_send)) then
        if (size(allocated_send) /= words) deallocate (allocated_send, allocated_receive)
      end if
      if (.not. allocated(allocated_send)) then
        allocate (allocated_send(words), allocated_receive(words))
        allocated_send = 0
        allocated_receive = 0
      end if
      od_fortran_ping_pong = run(allocated_send, allocated_receive)
    end if

  contains

    integer(c_int64_t) function run(send, receive) result(total)
      integer(c_int64_t), intent(inout) :: send(*), receive(*)
      integer(c_int64_t) :: i
      integer :: k

      total = 0
      do i = 1, iterations
        seed = seed + 1
        if (first == 0) call receive_one(receive, total)
        if (app /= 0) then
          do k = 1, words
            send(k) = seed + k
          end do
        end if
        call send_one(send)
        if (first /= 0) call receive_one(receive, total)
      end do
    end function run

    subroutine send_one(send)
      integer(c_int64_t), intent(inout) :: send(*)
      integer :: request, error

      if (nonblocking /= 0) then
        call MPI_Isend(send, words, MPI_INTEGER8, partner, 11, MPI_COMM_WORLD, request, error)
        call MPI_Wait(request, MPI_STATUS_IGNORE, error)
      else
        call MPI_Send(send, words, MPI_INTEGER8, partner, 11, MPI_COMM_WORLD, error)
      end if
    end subroutine send_one

    subroutine receive_one(receive, total)
      integer(c_int64_t), intent(inout) :: receive(*), total
      integer :: request, error

      if (nonblocking /= 0) then
        call MPI_Irecv(receive, words, MPI_INTEGER8, partner, 11, MPI_COMM_WORLD, request, error)
        call MPI_Wait(request, MPI_STATUS_IGNORE, error)
      else
        call MPI_Recv(receive, words, MPI_INTEGER8, partner, 11, MPI_COMM_WORLD, MPI_STATUS_IGNORE, error)
      end if
      if (app /= 0) total = total + sum(receive(1:words))
    end subroutine receive_one

  end function od_fortran_ping_pong

end module od_fortran_buffers
