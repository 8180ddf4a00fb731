/* Work-groups dealt among the calling thread and threads that wait for it, on x86-64 under Linux: compiled by PoCL,
 * whose kernels these call.  A launch's groups are taken from a counter by whoever is free; the caller never waits for
 * a thread that has not joined.  OpenCL C refuses function pointers and system calls: both are instructions.
 */
typedef unsigned long word;

/* One launch of a job; counters that many write have lines of the cache to themselves. */
struct launch {
    word function, arguments, context, groups;
    word alone; /* its groups are the caller's */
    word last;  /* of the job */
    word backwards; /* from its last group to its first */
    word took;        /* ticks of the job at its last call that began while threads were awake, */
    word took_asleep; /* and while some slept (after a pause, when caches are cold, too): kept in its first launch */
    word timed; /* set in its first launch: each shall say when it ended */
    word begun, ended; /* ticks; of the job, kept in its first launch, and of this launch */
    word apart[8], next;
    word apart_too[8], done;
};

struct pool {
    word job;
    word once; /* threads return instead of waiting: at the first launch, by which PoCL makes their code */
    word spin, wake; /* ticks: how long threads wait awake; how much work is worth waking those that sleep */
    word owed;       /* ticks of jobs that were begun while some slept */
    word parts;      /* who is free takes one in so many of the groups that are left */
    word threads, count;     /* where their numbers stand, and how many there are */
    word cores, bytes;       /* where a set of the cores that they may use stands, a bit for each, and its size */
    word caller;             /* the core of the last caller that woke them, which they keep off; from 1, 0: none */
    word apart[8], generation; /* of jobs; threads sleep on its lower half */
    word apart_too[8], sleepers;
    word apart_from_gate[8], gate; /* CLOSED between jobs, and how many threads are inside */
    word apart_from_lock[8], lock; /* of callers */
};

#define CLOSED (1ul << 32)
#define READ(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#define ADD(place, count) __atomic_fetch_add(place, count, __ATOMIC_ACQ_REL)

/* Linux, <linux/futex.h> and the table of system calls of x86-64 */
#define FUTEX 202
#define SETAFFINITY 203
#define GETCPU 309
#define WAIT 128 /* FUTEX_WAIT | FUTEX_PRIVATE_FLAG */
#define WAKE 129 /* FUTEX_WAKE | FUTEX_PRIVATE_FLAG */
#define ALL 0x7fffffff

static word ticks(void)
{
    uint low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (word)high << 32 | low;
}

static void breathe(void) { __asm__ volatile("pause" ::: "memory"); }

static void system_call(word number, word first, word second, word third)
{
    __asm__ volatile("xorl %%r10d, %%r10d; syscall"
                     : "+a"(number) : "D"(first), "S"(second), "d"(third) : "rcx", "r10", "r11", "memory");
}

static void futex(global word *place, word operation, word value)
{
    system_call(FUTEX, (word)place, operation, value);
}

/* Keeps the threads off the caller's core.  Linux wakes a thread there where its own core is busy and the two share no
 * cache, and moves it milliseconds later: half of a job, in turns, on one core. */
static void keep_off(global struct pool *pool)
{
    uint core = 0;
    system_call(GETCPU, (word)&core, 0, 0);
    if (core + 1ul == pool->caller || core / 8 >= pool->bytes)
        return;
    pool->caller = core + 1;
    global uchar *byte = (global uchar *)pool->cores + core / 8;
    uchar before = *byte;
    *byte &= ~(1 << core % 8);
    for (word number = 0; number < pool->count; ++number)
        system_call(SETAFFINITY, ((global word *)pool->threads)[number], pool->bytes, pool->cores);
    *byte = before;
}

/* The function of a launch, as PoCL calls it: (arguments, context, x, y, z).  Below the stack pointer may lie data of
 * this function (128 bytes, System V's red zone). */
static void call(global struct launch *launch, word group)
{
    word function = launch->function, arguments = launch->arguments, context = launch->context;
    word x = launch->backwards ? launch->groups - 1 - group : group;
    __asm__ volatile(
        "movq %%rsp, %%r12; subq $128, %%rsp; andq $-64, %%rsp; xorl %%ecx, %%ecx; xorl %%r8d, %%r8d;"
        " call *%%rax; movq %%r12, %%rsp"
        : "+a"(function), "+D"(arguments), "+S"(context), "+d"(x) :
        : "rcx", "r8", "r9", "r10", "r11", "r12", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
          "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

/* How many groups, from `first` on, are the asker's: many to begin with, as a counter that two cores write costs more
 * than a short group; at the end single ones, so that all end together. */
static word deal(global struct launch *launch, word parts, word *first)
{
    word count;
    *first = READ(&launch->next);
    do {
        word left = launch->groups - *first;
        count = left < parts ? left > 0 : left / parts;
    } while (count && !__atomic_compare_exchange_n(&launch->next, first, *first + count, 0, __ATOMIC_ACQ_REL,
                                                   __ATOMIC_ACQUIRE));
    return count;
}

/* The launches of a job in order, each begun when the one before is done. */
static void work(global struct launch *launch, int caller, word parts)
{
    int timed = caller && launch->timed;
    if (timed)
        launch->begun = ticks();
    for (;; ++launch) {
        word groups = launch->groups, mine = 0;
        if (caller || !launch->alone) {
            for (word first, count; (count = deal(launch, launch->alone ? 1 : parts, &first)); mine += count)
                for (word group = first; group < first + count; ++group)
                    call(launch, group);
            if (mine)
                ADD(&launch->done, mine);
        }
        if (launch->last && !timed)
            break;
        while (READ(&launch->done) < groups)
            breathe();
        if (timed)
            launch->ended = ticks();
        if (launch->last)
            break;
    }
}

/* A job by the calling thread, with the help of those that come; alone where another caller has them. */
static void do_job(global struct pool *pool, global struct launch *job)
{
    int shared = 0;
    global struct launch *launch = job;
    do {
        launch->next = launch->done = 0;
        shared |= !launch->alone;
    } while (!launch++->last);
    if (!shared || __atomic_exchange_n(&pool->lock, 1, __ATOMIC_ACQUIRE)) {
        work(job, 1, 1);
        return;
    }
    word begun = ticks();
    pool->job = (word)job;
    ADD(&pool->gate, -CLOSED);
    ADD(&pool->generation, 1);
    int asleep = READ(&pool->sleepers) != 0;
    word took = job->took > job->took_asleep ? job->took : job->took_asleep;
    if (asleep && (pool->owed += took) > pool->wake) {
        pool->owed = 0;
        keep_off(pool);
        futex(&pool->generation, WAKE, ALL);
    }
    work(job, 1, pool->parts);
    ADD(&pool->gate, CLOSED);
    while (READ(&pool->gate) != CLOSED)
        breathe();
    *(asleep ? &job->took_asleep : &job->took) = ticks() - begun;
    __atomic_store_n(&pool->lock, 0, __ATOMIC_RELEASE);
}

kernel void run_job(global struct pool *pool, global struct launch *job) { do_job(pool, job); }

/* What each thread of the pool does. */
kernel void serve_jobs(global struct pool *pool)
{
    word seen = READ(&pool->generation);
    while (!pool->once) {
        word begun = ticks();
        while (READ(&pool->generation) == seen) {
            if (ticks() - begun < pool->spin)
                breathe();
            else {
                ADD(&pool->sleepers, 1);
                futex(&pool->generation, WAIT, seen & 0xffffffff);
                ADD(&pool->sleepers, -1);
                begun = ticks();
            }
        }
        seen = READ(&pool->generation);
        if (!(ADD(&pool->gate, 1) & CLOSED))
            work((global struct launch *)pool->job, 0, pool->parts);
        ADD(&pool->gate, -1);
    }
}

/* A job as a function of NumPy arrays, which CPython calls as those of extension modules (METH_FASTCALL).  Arrays are
 * read as these read them: CPython's object.h and NumPy's ndarraytypes.h fix what lies where.
 */
struct dtype {
    word references, type, scalar;
    char kind, code, order;
};

struct array {
    word references, type, data;
    int axes;
    word extents, strides, base, dtype;
    int flags;
};

#define USABLE 0x501 /* NPY_ARRAY_CARRAY: contiguous, aligned and writeable */

/* What an array of a call must be.  Behind it stand its extents, and then where its address is to be written. */
struct wanted {
    word scalar, order; /* of its dtype */
    word bytes;
    word written; /* it may share no byte with those before it */
    word axes, places;
    word data; /* where that of this call lies */
};

struct call {
    word pool, job;
    word ndarray;                                 /* the type of all arrays */
    word release_python, take_python, as_boolean; /* PyEval_SaveThread, PyEval_RestoreThread, PyBool_FromLong */
    word count;
};

/* What a function of CPython answers. */
static word ask(word function, word argument)
{
    __asm__ volatile(
        "movq %%rsp, %%r12; subq $128, %%rsp; andq $-64, %%rsp; call *%%rax; movq %%r12, %%rsp"
        : "+a"(function), "+D"(argument) :
        : "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4",
          "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
    return function;
}

/* Where what is wanted of the next array stands. */
static global struct wanted *behind(global struct wanted *one)
{
    return (global struct wanted *)((global word *)(one + 1) + one->axes + one->places);
}

static int fits(global struct array *array, global struct wanted *wanted, word ndarray)
{
    if (array->type != ndarray || (array->flags & USABLE) != USABLE || array->axes != wanted->axes)
        return 0;
    global struct dtype *dtype = (global struct dtype *)array->dtype;
    if (dtype->scalar != wanted->scalar || dtype->order != wanted->order)
        return 0;
    global word *extents = (global word *)array->extents, *asked = (global word *)(wanted + 1);
    for (word axis = 0; axis < wanted->axes; ++axis)
        if (extents[axis] != asked[axis])
            return 0;
    return 1;
}

static int overlap(global struct wanted *a, global struct wanted *b)
{
    return a->data < b->data + b->bytes && b->data < a->data + a->bytes;
}

/* Whether the arrays are as the call wants them; if so, the launches have their addresses. */
static int take(global struct call *call, global word *arrays)
{
    global struct wanted *first = (global struct wanted *)(call + 1), *wanted = first;
    for (word number = 0; number < call->count; ++number, wanted = behind(wanted)) {
        global struct array *array = (global struct array *)arrays[number];
        if (!fits(array, wanted, call->ndarray))
            return 0;
        wanted->data = array->data;
        if (wanted->written)
            for (global struct wanted *other = first; other != wanted; other = behind(other))
                if (overlap(other, wanted))
                    return 0;
        global word *place = (global word *)(wanted + 1) + wanted->axes;
        for (word left = wanted->places; left; --left, ++place)
            *(global word *)*place = wanted->data;
    }
    return 1;
}

/* True of a job that was done with these arrays; False of one that was not, as one of them is not what it wants.
 * ``self``: an array whose contents are the call. */
__attribute__((noinline, used)) static word call_with(word self, word arrays, word count)
{
    global struct call *call = (global struct call *)((global struct array *)self)->data;
    word made = count == call->count && take(call, (global word *)arrays);
    if (made) {
        word thread = ask(call->release_python, 0);
        do_job((global struct pool *)call->pool, (global struct launch *)call->job);
        ask(call->take_python, thread);
    }
    return ask(call->as_boolean, made);
}

/* Writes where the function lies, which OpenCL C does not say.  That it could call it keeps PoCL from dropping it. */
kernel void find_call(global word *place)
{
    if (place[0])
        place[0] = call_with(place[0], place[1], place[2]);
    else
        __asm__("leaq call_with(%%rip), %0" : "=r"(place[0]));
}
