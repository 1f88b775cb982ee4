// Events of many courses, in each of which they come in the order of their times: what arrives over one link
// after the other. Only the first of each course is kept in order. Beside these, alarms: of each number one
// at a time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace chakrascope::engine::flow {

// An item has a `time` and an `order`, of events added before, which are set here.
template <class Item>
class Courses {
  public:
    Courses(std::size_t courses, std::size_t alarms) : courses_(courses) { heads_.reserve(courses + alarms); }

    struct Event {
        std::int64_t time;
        std::uint64_t order;
        std::uint32_t source;  // the course, or behind these the alarm
        bool before(const Event& other) const {
            return time != other.time ? time < other.time : order < other.order;
        }
    };

    bool empty() const { return heads_.empty(); }
    const Event& first() const { return heads_.front(); }
    bool is_alarm(const Event& event) const { return event.source >= courses_.size(); }
    std::uint32_t alarm_of(const Event& event) const {
        return event.source - static_cast<std::uint32_t>(courses_.size());
    }

    // Not before what the course holds already; at once otherwise.
    void add(std::uint32_t number, std::int64_t time, const Item& item) {
        Course& course = courses_[number];
        if (course.count > 0) time = std::max(time, course.last);
        course.last = time;
        if (course.count == 0) push({time, added_, number});
        Item& added = course.push(item);
        added.time = time;
        added.order = added_++;
    }
    void add_alarm(std::uint32_t number, std::int64_t time) {
        push({time, added_++, static_cast<std::uint32_t>(courses_.size()) + number});
    }

    // Take the first event, an alarm.
    void take_alarm() {
        drop_first();
        fetch_first();
    }
    // Take the first event, an item of a course. `seen` is told of the next one of its course, which is not
    // soon to come as a rule, so that what it needs can be fetched.
    template <class Seen>
    Item take(const Seen& seen) {
        const std::uint32_t number = heads_.front().source;
        Course& course = courses_[number];
        const Item item = course.front();
        course.pop();
        if (course.count == 0) {
            drop_first();
        } else {
            const Item& next = course.front();
            sink({next.time, next.order, number});
            course.fetch_second();
            seen(next);
        }
        fetch_first();
        return item;
    }

  private:
    // First in, first out, in an array that grows.
    struct Course {
        std::vector<Item> items;
        std::size_t first = 0;
        std::size_t count = 0;
        std::int64_t last = 0;

        const Item& front() const { return items[first]; }
        void fetch_second() const { __builtin_prefetch(&items[(first + 1) & (items.size() - 1)]); }
        Item& push(const Item& item) {
            if (count == items.size()) grow();
            return items[(first + count++) & (items.size() - 1)] = item;
        }
        void pop() {
            first = (first + 1) & (items.size() - 1);
            --count;
        }
        void grow() {
            std::vector<Item> larger(std::max<std::size_t>(4, 2 * items.size()));
            for (std::size_t i = 0; i < count; ++i) larger[i] = items[(first + i) & (items.size() - 1)];
            items.swap(larger);
            first = 0;
        }
    };

    static bool later(const Event& a, const Event& b) { return b.before(a); }

    // What comes next may have left the caches since it was added.
    void fetch_first() const {
        if (heads_.empty() || is_alarm(heads_.front())) return;
        const Course& course = courses_[heads_.front().source];
        __builtin_prefetch(&course.front());
    }

    void drop_first() {
        std::pop_heap(heads_.begin(), heads_.end(), later);
        heads_.pop_back();
    }

    void push(const Event& event) {
        heads_.push_back(event);
        std::push_heap(heads_.begin(), heads_.end(), later);
    }

    // Put it in the place of the first head and move it down to where it belongs.
    void sink(const Event& moving) {
        const std::size_t count = heads_.size();
        std::size_t place = 0;
        for (std::size_t child = 1; child < count; child = 2 * place + 1) {
            if (child + 1 < count && heads_[child + 1].before(heads_[child])) ++child;
            if (!heads_[child].before(moving)) break;
            heads_[place] = heads_[child];
            place = child;
        }
        heads_[place] = moving;
    }

    std::vector<Course> courses_;
    std::vector<Event> heads_;  // a heap
    std::uint64_t added_ = 0;
};

}  // namespace chakrascope::engine::flow
