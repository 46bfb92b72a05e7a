# Builds for newer processors (-march=native, Spack's target) say in each file which level they need.
#
# On an older one the dynamic linker then names the file and the reason, and the command runs jobs without
# Overdrive, where each program would end by an instruction that there is not. A build for every x86-64
# processor is not marked: it stays what it was, byte for byte.

include(CheckCXXCompilerFlag)
include(CheckCXXSourceCompiles)

check_cxx_source_compiles("#if !defined(__x86_64__) || !defined(__SSE3__)\n#error every processor\n#endif\nint main() {}"
  OVERDRIVE_FOR_NEWER_PROCESSORS)
if(OVERDRIVE_FOR_NEWER_PROCESSORS)
  check_cxx_compiler_flag(-mneeded OVERDRIVE_MARKS_NEEDED)
  if(OVERDRIVE_MARKS_NEEDED)
    target_compile_options(overdrive_options INTERFACE $<$<COMPILE_LANGUAGE:C,CXX>:-mneeded>)
    # What is optimised as a whole is compiled when it is linked.
    target_link_options(overdrive_options INTERFACE -mneeded)
  endif()
endif()
