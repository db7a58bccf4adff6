// Adds jobs and shows the queue:
//   SPARK_BULL_URL=redis://localhost:6379 spark-shell < jobs/scala/mail.scala
import spark.implicits._

val mails = Seq(("ada@example.org", 1), ("alan@example.org", 2)).toDF("to", "template")
mails.write.format("bull").option("queue", "mail").mode("append").save()

val jobs = spark.read.format("bull").option("queue", "mail").option("payloadSchema", "to STRING, template INT").load()
jobs.orderBy($"id".cast("int")).select("id", "state", "data.to").show(false)

System.exit(0)
