-- Adds jobs and shows the queue:
--   SPARK_BULL_URL=redis://localhost:6379 spark-sql -f jobs/sql/mail.sql
CREATE TEMPORARY VIEW outbox (to STRING, template INT) USING bull OPTIONS (queue 'mail');
INSERT INTO outbox VALUES ('ada@example.org', 1), ('alan@example.org', 2);

CREATE TEMPORARY VIEW mail USING bull OPTIONS (queue 'mail', payloadSchema 'to STRING, template INT');
SELECT id, state, data.to FROM mail ORDER BY int(id);
