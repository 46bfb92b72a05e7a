! Fortran with `use mpi`: what mpifh.f90 does, with the procedures of the module.
program usempi
  use mpi
  implicit none
  character(len=*), parameter :: form = 'usempi'
  include 'messages.inc'
end program usempi
