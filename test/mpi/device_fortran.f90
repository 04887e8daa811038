! SPDX-License-Identifier: BSD-3-Clause
! Messages, derived datatypes and collectives of MPI's Fortran bindings on device memory.
!
! Run with two ranks or more: gpushm-run mpirun -n 2 device_fortran

! The few functions of libcuda that are needed here, looked up at run time as CUDA's users do.
module device_memory
    use, intrinsic :: iso_c_binding
    implicit none
    private
    public :: open_driver, allocate_device, write_device, read_device

    integer(c_int), parameter :: rtld_now = 2

    interface
        type(c_ptr) function dlopen(name, flags) bind(c)
            import :: c_ptr, c_char, c_int
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int), value :: flags
        end function
        type(c_funptr) function dlsym(library, name) bind(c)
            import :: c_ptr, c_funptr, c_char
            type(c_ptr), value :: library
            character(kind=c_char), intent(in) :: name(*)
        end function
    end interface

    abstract interface
        integer(c_int) function init_function(flags) bind(c)
            import :: c_int
            integer(c_int), value :: flags
        end function
        integer(c_int) function get_function(made, ordinal) bind(c)
            import :: c_int
            integer(c_int), intent(out) :: made
            integer(c_int), value :: ordinal
        end function
        integer(c_int) function retain_function(context, device) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), intent(out) :: context
            integer(c_int), value :: device
        end function
        integer(c_int) function context_function(context) bind(c)
            import :: c_int, c_ptr
            type(c_ptr), value :: context
        end function
        integer(c_int) function synchronize_function() bind(c)
            import :: c_int
        end function
        integer(c_int) function allocate_function(address, bytes) bind(c)
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), intent(out) :: address
            integer(c_size_t), value :: bytes
        end function
        integer(c_int) function copy_function(to, from, bytes) bind(c)
            import :: c_int, c_ptr, c_size_t
            type(c_ptr), value :: to, from
            integer(c_size_t), value :: bytes
        end function
    end interface

    procedure(allocate_function), pointer :: mem_alloc
    procedure(copy_function), pointer :: memcpy_htod, memcpy_dtoh
    procedure(synchronize_function), pointer :: ctx_synchronize

contains

    type(c_funptr) function find(library, name)
        type(c_ptr), intent(in) :: library
        character(*), intent(in) :: name

        find = dlsym(library, name // c_null_char)
        if (.not. c_associated(find)) then
            print '(3a)', 'device_fortran: libcuda.so.1 has no ', name
            error stop
        end if
    end function

    subroutine require(result, what)
        integer(c_int), intent(in) :: result
        character(*), intent(in) :: what

        if (result /= 0) then
            print '(3a, i0)', 'device_fortran: ', what, ': CUDA error ', result
            error stop
        end if
    end subroutine

    ! Makes the primary context of device 0 current.
    subroutine open_driver()
        type(c_ptr) :: library, context
        integer(c_int) :: device
        procedure(init_function), pointer :: init
        procedure(get_function), pointer :: device_get
        procedure(retain_function), pointer :: primary_ctx_retain
        procedure(context_function), pointer :: ctx_set_current

        library = dlopen('libcuda.so.1' // c_null_char, rtld_now)
        if (.not. c_associated(library)) then
            print '(a)', 'device_fortran: libcuda.so.1 cannot be opened'
            error stop
        end if
        call c_f_procpointer(find(library, 'cuInit'), init)
        call c_f_procpointer(find(library, 'cuDeviceGet'), device_get)
        call c_f_procpointer(find(library, 'cuDevicePrimaryCtxRetain'), primary_ctx_retain)
        call c_f_procpointer(find(library, 'cuCtxSetCurrent'), ctx_set_current)
        call c_f_procpointer(find(library, 'cuCtxSynchronize'), ctx_synchronize)
        call c_f_procpointer(find(library, 'cuMemAlloc_v2'), mem_alloc)
        call c_f_procpointer(find(library, 'cuMemcpyHtoD_v2'), memcpy_htod)
        call c_f_procpointer(find(library, 'cuMemcpyDtoH_v2'), memcpy_dtoh)
        call require(init(0), 'cuInit')
        call require(device_get(device, 0), 'cuDeviceGet')
        call require(primary_ctx_retain(context, device), 'cuDevicePrimaryCtxRetain')
        call require(ctx_set_current(context), 'cuCtxSetCurrent')
    end subroutine

    ! Lives as long as the process. Contiguous, so that no compiler passes on a copy in its place.
    subroutine allocate_device(array, count)
        real(c_double), pointer, contiguous, intent(out) :: array(:)
        integer, intent(in) :: count
        type(c_ptr) :: address

        call require(mem_alloc(address, 8_c_size_t * count), 'cuMemAlloc')
        call c_f_pointer(address, array, [count])
    end subroutine

    subroutine write_device(array, values)
        real(c_double), pointer, contiguous, intent(in) :: array(:)
        real(c_double), contiguous, target, intent(in) :: values(:)

        call require(memcpy_htod(c_loc(array), c_loc(values), 8_c_size_t * size(values)), &
                     'cuMemcpyHtoD')
        call require(ctx_synchronize(), 'cuCtxSynchronize')
    end subroutine

    function read_device(array) result(values)
        real(c_double), pointer, contiguous, intent(in) :: array(:)
        real(c_double), allocatable, target :: values(:)

        allocate (values(size(array)))
        call require(memcpy_dtoh(c_loc(values), c_loc(array), 8_c_size_t * size(array)), &
                     'cuMemcpyDtoH')
    end function

end module

module tests
    use, intrinsic :: iso_c_binding, only: c_double
    use mpi
    use device_memory
    implicit none
    private
    public :: test_all

    real(c_double), parameter :: untouched = -1
    integer, parameter :: tag = 5
    ! Of the vector: blocks of so many elements, so far apart.
    integer, parameter :: block_length = 2, stride = 5

    real(c_double), pointer, contiguous :: source(:), target(:)
    integer :: ranks, rank, left, right
    integer :: round = 0
    integer :: ierror ! not looked at: errors are fatal

contains

    ! Tests with arrays of `count` elements, a multiple of the stride.
    subroutine test_all(count)
        integer, intent(in) :: count
        logical :: all_of(count), blocks(count)
        integer :: vector, i

        call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
        call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
        left = modulo(rank - 1, ranks)
        right = modulo(rank + 1, ranks)
        call allocate_device(source, count)
        call allocate_device(target, count)
        call MPI_Type_vector(count / stride, block_length, stride, MPI_DOUBLE_PRECISION, vector, &
                             ierror)
        call MPI_Type_commit(vector, ierror)

        all_of = .true.
        blocks = [(modulo(i, stride) < block_length, i = 0, count - 1)]
        call test_blocking(count, MPI_DOUBLE_PRECISION, all_of, 'MPI_Send')
        call test_blocking(1, vector, blocks, 'MPI_Send of a vector')
        call test_nonblocking(count, MPI_DOUBLE_PRECISION, all_of, 'MPI_Isend')
        call test_nonblocking(1, vector, blocks, 'MPI_Isend of a vector')
        call test_bcast(count)
        call test_allreduce(count)
        call test_in_place(count)
        call test_user_operation(count)
        call test_absolute_addresses(count)
        call MPI_Type_free(vector, ierror)
    end subroutine

    ! What a rank has in its source in this round.
    function values(of_rank)
        integer, intent(in) :: of_rank
        real(c_double) :: values(size(source))
        integer :: i

        values = [(1d6 * round + 1d5 * of_rank + i, i = 1, size(source))]
    end function

    function sum_of_ranks() result(total)
        real(c_double) :: total(size(source))
        integer :: i

        total = 0
        do i = 0, ranks - 1
            total = total + values(i)
        end do
    end function

    subroutine start_round()
        real(c_double) :: poison(size(target))

        round = round + 1
        poison = untouched
        call write_device(source, values(rank))
        call write_device(target, poison)
    end subroutine

    subroutine check(got, expected, what)
        real(c_double), intent(in) :: got(:), expected(:)
        character(*), intent(in) :: what
        integer :: i

        do i = 1, size(got)
            if (got(i) /= expected(i)) then
                print '(a, i0, 3a, i0, a, i0, a, f0.1, a, f0.1)', 'device_fortran: rank ', rank, &
                    ': ', what, ': element ', i, ' of ', size(got), ' is ', got(i), ', not ', &
                    expected(i)
                call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
            end if
        end do
    end subroutine

    ! Around a ring: odd ranks receive first.
    subroutine test_blocking(count, datatype, sent, what)
        integer, intent(in) :: count, datatype
        logical, intent(in) :: sent(:)
        character(*), intent(in) :: what

        call start_round()
        if (modulo(rank, 2) == 0) then
            call MPI_Send(source, count, datatype, right, tag, MPI_COMM_WORLD, ierror)
        end if
        call MPI_Recv(target, count, datatype, left, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierror)
        if (modulo(rank, 2) == 1) then
            call MPI_Send(source, count, datatype, right, tag, MPI_COMM_WORLD, ierror)
        end if
        call check(read_device(target), merge(values(left), untouched, sent), what)
    end subroutine

    subroutine test_nonblocking(count, datatype, sent, what)
        integer, intent(in) :: count, datatype
        logical, intent(in) :: sent(:)
        character(*), intent(in) :: what
        integer :: requests(2)

        call start_round()
        call MPI_Irecv(target, count, datatype, left, tag, MPI_COMM_WORLD, requests(1), ierror)
        call MPI_Isend(source, count, datatype, right, tag, MPI_COMM_WORLD, requests(2), ierror)
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, ierror)
        call check(read_device(target), merge(values(left), untouched, sent), what)
    end subroutine

    subroutine test_bcast(count)
        integer, intent(in) :: count

        call start_round()
        if (rank == ranks - 1) call write_device(target, values(rank))
        call MPI_Bcast(target, count, MPI_DOUBLE_PRECISION, ranks - 1, MPI_COMM_WORLD, ierror)
        call check(read_device(target), values(ranks - 1), 'MPI_Bcast')
    end subroutine

    subroutine test_allreduce(count)
        integer, intent(in) :: count

        call start_round()
        call MPI_Allreduce(source, target, count, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, &
                           ierror)
        call check(read_device(target), sum_of_ranks(), 'MPI_Allreduce')
        call check(read_device(source), values(rank), 'source of MPI_Allreduce')
    end subroutine

    subroutine test_in_place(count)
        integer, intent(in) :: count

        call start_round()
        call MPI_Allreduce(MPI_IN_PLACE, source, count, MPI_DOUBLE_PRECISION, MPI_SUM, &
                           MPI_COMM_WORLD, ierror)
        call check(read_device(source), sum_of_ranks(), 'MPI_Allreduce, MPI_IN_PLACE')
    end subroutine

    ! Not what MPI_SUM does, but associative and commutative too.
    subroutine add_and_one(in, inout, length, datatype)
        integer, intent(in) :: length, datatype
        real(c_double), intent(in) :: in(length)
        real(c_double), intent(inout) :: inout(length)

        if (datatype /= MPI_DOUBLE_PRECISION) call MPI_Abort(MPI_COMM_WORLD, 1, ierror)
        inout = in + inout + 1
    end subroutine

    subroutine test_user_operation(count)
        integer, intent(in) :: count
        integer :: operation

        call start_round()
        call MPI_Op_create(add_and_one, .true., operation, ierror)
        call MPI_Allreduce(source, target, count, MPI_DOUBLE_PRECISION, operation, &
                           MPI_COMM_WORLD, ierror)
        call MPI_Op_free(operation, ierror)
        call check(read_device(target), sum_of_ranks() + (ranks - 1), 'operation of the program')
    end subroutine

    ! The elements of an array at their absolute addresses, those from `first` on before the others.
    integer function rotated(array, first) result(datatype)
        real(c_double), pointer, contiguous, intent(in) :: array(:)
        integer, intent(in) :: first
        integer(MPI_ADDRESS_KIND) :: addresses(2)
        integer :: lengths(2), types(2)

        lengths = [size(array) - first + 1, first - 1]
        types = MPI_DOUBLE_PRECISION
        call MPI_Get_address(array(first), addresses(1), ierror)
        call MPI_Get_address(array(1), addresses(2), ierror)
        call MPI_Type_create_struct(2, lengths, addresses, types, datatype, ierror)
        call MPI_Type_commit(datatype, ierror)
    end function

    subroutine test_absolute_addresses(count)
        integer, intent(in) :: count
        integer :: from, to, sent, received, request

        from = count / 2
        to = count / 5
        call start_round()
        sent = rotated(source, from)
        received = rotated(target, to)
        call MPI_Irecv(MPI_BOTTOM, 1, received, left, tag, MPI_COMM_WORLD, request, ierror)
        call MPI_Send(MPI_BOTTOM, 1, sent, right, tag, MPI_COMM_WORLD, ierror)
        call MPI_Wait(request, MPI_STATUS_IGNORE, ierror)
        call MPI_Type_free(sent, ierror)
        call MPI_Type_free(received, ierror)
        call check(read_device(target), cshift(values(left), from - to), 'MPI_BOTTOM')
    end subroutine

end module

program device_fortran
    use mpi
    use device_memory
    use tests
    implicit none

    integer :: rank, ranks, ierror

    call MPI_Init(ierror)
    call open_driver()
    ! Short messages; and those above all limits, with what they take in GPU memory.
    call test_all(100)
    call test_all(60000)
    call MPI_Barrier(MPI_COMM_WORLD, ierror)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    if (rank == 0) print '(a, i0, a)', 'device_fortran: ', ranks, ' ranks passed'
    call MPI_Finalize(ierror)
end program
