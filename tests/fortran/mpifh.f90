! Fortran with mpif.h: blocking and non-blocking messages, statuses, request arrays, COMMON blocks,
! automatic and allocatable arrays, character data, derived datatypes, wildcards, MPI_BOTTOM,
! ignored statuses, persistent requests.
program mpifh
  implicit none
  include 'mpif.h'
  character(len=*), parameter :: form = 'mpifh'
  include 'messages.inc'
end program mpifh
