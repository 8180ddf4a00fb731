/* Work-groups dealt among the calling thread and threads that wait for it, on x86-64 under Linux: compiled by PoCL, whose
 * kernels these call.  A launch's groups are taken one by one from a counter, by whoever is free; the caller never waits
 * for a thread that has not joined.  OpenCL C refuses function pointers and system calls: both are instructions.
 */
typedef unsigned long word;

/* One launch of a job; counters that many write have lines of the cache to themselves. */
struct launch {
    word function, arguments, context, groups;
    word alone; /* its groups are the caller's */
    word last;  /* of the job */
    word took;  /* ticks of the job at its call before, kept in its first launch */
    word apart[8], next;
    word apart_too[8], done;
};

struct pool {
    word job;
    word once; /* threads return instead of waiting: at the first launch, by which PoCL makes their code */
    word spin, wake; /* ticks: how long threads wait awake; how much work is worth waking those that sleep */
    word owed;       /* ticks of jobs that were begun while some slept */
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

static void futex(global word *place, word operation, word value)
{
    word number = FUTEX;
    __asm__ volatile("xorl %%r10d, %%r10d; syscall"
                     : "+a"(number) : "D"(place), "S"(operation), "d"(value) : "rcx", "r10", "r11", "memory");
}

/* The function of a launch, as PoCL calls it: (arguments, context, x, y, z).  Below the stack pointer may lie data of
 * this function (128 bytes, System V's red zone). */
static void call(global struct launch *launch, word group)
{
    word function = launch->function, arguments = launch->arguments, context = launch->context, x = group;
    __asm__ volatile(
        "movq %%rsp, %%r12; subq $128, %%rsp; andq $-64, %%rsp; xorl %%ecx, %%ecx; xorl %%r8d, %%r8d;"
        " call *%%rax; movq %%r12, %%rsp"
        : "+a"(function), "+D"(arguments), "+S"(context), "+d"(x) :
        : "rcx", "r8", "r9", "r10", "r11", "r12", "memory", "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5",
          "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15");
}

/* The launches of a job in order, each begun when the one before is done. */
static void work(global struct launch *launch, int caller)
{
    for (;; ++launch) {
        word groups = launch->groups, mine = 0;
        if (caller || !launch->alone) {
            for (word group; (group = ADD(&launch->next, 1)) < groups; ++mine)
                call(launch, group);
            if (mine)
                ADD(&launch->done, mine);
        }
        if (launch->last)
            break;
        while (READ(&launch->done) < groups)
            breathe();
    }
}

/* A job by the calling thread, with the help of those that come; alone where another caller has them. */
kernel void run_job(global struct pool *pool, global struct launch *job)
{
    int shared = 0;
    global struct launch *launch = job;
    do {
        launch->next = launch->done = 0;
        shared |= !launch->alone;
    } while (!launch++->last);
    if (!shared || __atomic_exchange_n(&pool->lock, 1, __ATOMIC_ACQUIRE)) {
        work(job, 1);
        return;
    }
    word begun = ticks();
    pool->job = (word)job;
    ADD(&pool->gate, -CLOSED);
    ADD(&pool->generation, 1);
    if (READ(&pool->sleepers) && (pool->owed += job->took) > pool->wake) {
        pool->owed = 0;
        futex(&pool->generation, WAKE, ALL);
    }
    work(job, 1);
    ADD(&pool->gate, CLOSED);
    while (READ(&pool->gate) != CLOSED)
        breathe();
    job->took = ticks() - begun;
    __atomic_store_n(&pool->lock, 0, __ATOMIC_RELEASE);
}

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
            work((global struct launch *)pool->job, 0);
        ADD(&pool->gate, -1);
    }
}
